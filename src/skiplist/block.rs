//! Blocks: 64 consecutive positions, their slots made as they are needed.
//!
//! A block holds one slot inline, for the position that made it: a sparse log needs no more. The
//! other slots come in chunks: in a *dense* block in one chunk for all, otherwise in chunks of
//! four. A block is dense when the last four positions of the block before it are in use: a log
//! that goes on as it was then costs one allocation for 64 messages, and no pointers to chunks.
//!
//! The word `made` says which chunks are made or being made, and how many positions are *sealed*
//! without a chunk; both are decided by exchanges of that one word, so that a slot is either made
//! before it is sealed, and then sealed in place, or refused.
//!
//! A chunk whose slots are all done can be given back before its block is passed: its pointer is
//! then [`Chunk::GIVEN_BACK`], which reads as done.

use alloc::boxed::Box;
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};

use crate::control::{Branch, Control, hit, weak};
use crate::engine::Elsewhere;
use crate::position::Pos;
use crate::skiplist::reclaim::{Pin, check};
use crate::slot::{Lap, Phase, Place, Slot, Taken};
use crate::sync::{AtomicPtr, AtomicU32, AtomicWord, Ordering, Word};

/// Positions of a block.
pub(crate) const BLOCK: u64 = 64;
/// Slots of a chunk of a sparse block: more would cost memory, fewer allocations.
pub(crate) const CHUNK: u64 = 4;
const CHUNKS: usize = (BLOCK / CHUNK) as usize;

/// The block that a position is in.
#[inline(always)]
pub(crate) const fn key(pos: Pos) -> u64 {
    pos / BLOCK
}

/// A pointer to a neighbour in a list, and the mark that freezes it.
pub(crate) struct Link<T>(AtomicPtr<T>);

/// What a link held.
pub(crate) struct Linked<T>(*mut T);

impl<T> Clone for Linked<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Linked<T> {}

impl<T> Linked<T> {
    pub(crate) fn to(target: *const T) -> Self {
        Self(target.cast_mut())
    }

    /// Nothing can be linked in here any more.
    #[inline(always)]
    pub(crate) fn is_frozen(self) -> bool {
        self.0.addr() & 1 != 0 && !weak(Control::FrozenIgnored)
    }

    #[inline(always)]
    pub(crate) fn target(self) -> *mut T {
        self.0.map_addr(|address| address & !1)
    }

    fn frozen(self) -> Self {
        Self(self.0.map_addr(|address| address | 1))
    }

    /// The same target, and the same mark?
    pub(crate) fn is(self, other: Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Link<T> {
    crate::sync::const_unless_loom! {
        pub(crate) const fn new() -> Self {
            Self(AtomicPtr::new(ptr::null_mut()))
        }
    }

    #[inline(always)]
    pub(crate) fn load(&self) -> Linked<T> {
        // Acquire: what is linked was made before.
        Linked(self.0.load(Ordering::Acquire))
    }

    /// For a link that nobody else can reach yet.
    pub(crate) fn set(&self, to: Linked<T>) {
        self.0.store(to.0, Ordering::Release);
    }

    pub(crate) fn swap(&self, to: Linked<T>) -> Linked<T> {
        Linked(self.0.swap(to.0, Ordering::AcqRel))
    }

    #[inline(always)]
    pub(crate) fn exchange(&self, from: Linked<T>, to: Linked<T>) -> bool {
        let order = if weak(Control::LinkRelaxed) { Ordering::Relaxed } else { Ordering::AcqRel };
        self.0.compare_exchange(from.0, to.0, order, Ordering::Relaxed).is_ok()
    }

    /// Freezes the link if it still holds `from`, or says that it is frozen.
    pub(crate) fn freeze(&self, from: Linked<T>) -> bool {
        from.is_frozen() || self.exchange(from, from.frozen())
    }
}

impl<T> Linked<Block<T>> {
    /// For the table of blocks: the chunk that has all slots of one.
    fn to_chunk(chunk: *mut Chunk<T>) -> Self {
        Self(chunk.cast::<Block<T>>().map_addr(|address| address | 1))
    }

    /// The chunk, if this is one.
    #[inline(always)]
    fn chunk(self) -> Option<NonNull<Chunk<T>>> {
        let marked = self.0.addr() & 1 != 0;
        marked.then(|| NonNull::new(self.0.map_addr(|address| address & !1).cast())).flatten()
    }

    /// The block that an entry of the table shows, by itself or by its chunk.
    ///
    /// # Safety
    /// The entry was read under a pin that lasts for `'p`.
    #[inline(always)]
    pub(crate) unsafe fn shown<'p>(self) -> Option<&'p Block<T>>
    where
        T: 'p,
    {
        let block = match self.chunk() {
            Some(chunk) => {
                check(chunk.as_ptr());
                // SAFETY: promised by the caller: what the table shows was not retired before.
                unsafe { (*chunk.as_ptr()).block }
            }
            None => self.0,
        };
        check(block);
        // SAFETY: as above; a chunk is shown while its block is.
        unsafe { block.as_ref() }
    }

    /// The place of a position, if an entry of the table shows the chunk that has it.
    ///
    /// # Safety
    /// The entry was read under a pin that lasts for `'p`.
    #[inline(always)]
    pub(crate) unsafe fn place<'p>(self, pos: Pos) -> Option<Place<'p, T>>
    where
        T: 'p,
    {
        let chunk = self.chunk()?.as_ptr();
        check(chunk);
        // SAFETY: as in `shown`.
        let made_for = unsafe { (*chunk).made_for };
        if key(made_for) != key(pos) || made_for == pos {
            return None;
        }
        hit(Branch::FoundByChunk);
        // SAFETY: as above: it has a slot for every position of the block.
        Some(unsafe { Chunk::place(chunk, pos, true) })
    }
}

/// A block.
#[repr(C)]
pub(crate) struct Block<T> {
    /// Itself, as it was allocated: freed through this, since a reference may not free.
    own: *mut Block<T>,
    /// The position that made it: the inline slot's.
    made_for: Pos,
    made: AtomicWord,
    /// Who must have done with the block before it is freed: its place in level 0, its inserter,
    /// and for a moment finders that show it in the table, and whoever gives its one chunk back.
    refs: AtomicU32,
    /// Slots that lending leases of an ended assignment still have.
    pub(crate) doomed: AtomicU32,
    pub(crate) next: Link<Block<T>>,
    /// Its links in the upper levels.
    pub(crate) tower: Box<[Link<Block<T>>]>,
    /// One chunk for all of the block, or chunks of four.
    dense: bool,
    /// The one chunk, or a [`Body`].
    top: AtomicPtr<Chunk<T>>,
    inline: Slot<T>,
}

/// The chunks of a sparse block.
struct Body<T>([AtomicPtr<Chunk<T>>; CHUNKS]);

/// What every chunk begins with: a [`Few`], or the [`All`] of a dense block.
#[repr(C)]
pub(crate) struct Chunk<T> {
    block: *const Block<T>,
    /// The block's.
    made_for: Pos,
}

/// A chunk of a sparse block.
#[repr(C)]
struct Few<T> {
    chunk: Chunk<T>,
    slots: [Slot<T>; CHUNK as usize],
}

/// The chunk of a dense block.
#[repr(C)]
struct All<T> {
    chunk: Chunk<T>,
    /// Who must have done with the chunk before it is freed, if it is before its block: its place
    /// in the block, and finders that show it in the table for a moment.
    refs: AtomicU32,
    /// How many slots were filled. Several putters may count fewer than it were, and then its
    /// finishers look more often than they need to.
    filled: AtomicU32,
    /// How many messages were finished while the block was far above the watermark.
    finished: AtomicU32,
    slots: [Slot<T>; BLOCK as usize],
}

impl<T> All<T> {
    /// How many slots are ever used: all but the one beside the inline slot.
    const USED: u32 = BLOCK as u32 - 1;
}

impl<T> Chunk<T> {
    /// The pointer of a chunk that was given back: all its slots are done.
    const GIVEN_BACK: *mut Chunk<T> = ptr::without_provenance_mut(1);

    /// The slots.
    ///
    /// # Safety
    /// `chunk` is allocated, for a block that is dense or not.
    #[inline(always)]
    unsafe fn slots(chunk: *mut Self, dense: bool) -> *mut Slot<T> {
        // SAFETY: promised by the caller: in bounds.
        unsafe {
            match dense {
                true => (&raw mut (*chunk.cast::<All<T>>()).slots).cast(),
                false => (&raw mut (*chunk.cast::<Few<T>>()).slots).cast(),
            }
        }
    }

    /// The place of a position.
    ///
    /// # Safety
    /// `chunk` is of the block of `pos`, which is dense or not, and has its slot; it lives for
    /// `'p`.
    #[inline(always)]
    unsafe fn place<'p>(chunk: *mut Self, pos: Pos, dense: bool) -> Place<'p, T>
    where
        T: 'p,
    {
        check(chunk);
        let index = pos % if dense { BLOCK } else { CHUNK };
        // SAFETY: promised by the caller. Made from the chunk's own pointer, so that it leads
        // back to the chunk.
        let slot = unsafe { &*Self::slots(chunk, dense).add(index as usize) };
        Place { slot, lap: Lap::new(lap_in_chunk(pos, dense)), pos }
    }
}

/// The lap of the inline slot. A slot of the skip list is used once, so its lap only has to tell
/// "open" from "done"; the rest of it says where the slot is in its block or chunk.
const INLINE: u64 = 0;

/// The lap of the slot of `pos` in a chunk.
#[inline(always)]
const fn lap_in_chunk(pos: Pos, dense: bool) -> u64 {
    2 * (1 + pos % BLOCK + if dense { BLOCK } else { 0 })
}

/// One reference more, unless none is left.
fn keep(refs: &AtomicU32) -> bool {
    let mut seen = refs.load(Ordering::Relaxed);
    while seen > 0 {
        match refs.compare_exchange(seen, seen + 1, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(other) => seen = other,
        }
    }
    false
}

/// The first position of the block that was made for one.
#[inline(always)]
const fn first_of(made_for: Pos) -> Pos {
    made_for & !(BLOCK - 1)
}

/// Where a slot is.
enum Home<'p, T> {
    /// It is the inline one.
    Block(&'p Block<T>),
    /// In a chunk, of a block made for a position; and its own position.
    Chunk { chunk: *mut Chunk<T>, dense: bool, made_for: Pos, pos: Pos },
}

/// A chunk and where it is.
pub(crate) struct ChunkRef<'p, T> {
    pub(crate) block: &'p Block<T>,
    index: usize,
    chunk: *mut Chunk<T>,
}

impl<T> ChunkRef<'_, T> {
    /// For the table.
    pub(crate) fn linked(&self) -> Linked<Block<T>> {
        Linked::to_chunk(self.chunk)
    }

    /// May the table show it?
    pub(crate) fn may_be_shown(&self) -> bool {
        self.block.dense
    }

    /// Takes the chunk, of which everything is done, from its block; true for the one that did, which
    /// has the block's reference then.
    pub(crate) fn take(&mut self) -> bool {
        let Some(word) = self.block.word(self.index) else { return false };
        let (given_back, order) = (Chunk::GIVEN_BACK, Ordering::AcqRel);
        match word.compare_exchange(self.chunk, given_back, order, Ordering::Relaxed) {
            // The pointer that was stored: a slot's leads to the chunk, but may not free it.
            Ok(stored) => {
                hit(Branch::ChunkGivenBack);
                self.chunk = stored;
                true
            }
            Err(_) => false,
        }
    }

    /// One reference less; true for the last, which takes the chunk out of the table and retires
    /// it.
    pub(crate) fn leave(&self) -> bool {
        check(self.chunk);
        if !self.block.dense {
            return true;
        }
        // SAFETY: alive, by this reference.
        let refs = unsafe { &(*self.chunk.cast::<All<T>>()).refs };
        // AcqRel: the last sees where the others have shown it.
        refs.fetch_add(u32::MAX, Ordering::AcqRel) == 1
    }

    /// Frees the chunk when every pin of now is gone.
    ///
    /// # Safety
    /// The last reference is gone, and no table shows the chunk.
    pub(crate) unsafe fn retire(self, pin: &Pin) {
        // Its slots are done for ever: there is no message to drop, and they are not read once more.
        // SAFETY: promised by the caller; so many slots were allocated.
        unsafe {
            match self.block.dense {
                true => pin.retire(self.chunk.cast::<ManuallyDrop<All<T>>>()),
                false => pin.retire(self.chunk.cast::<ManuallyDrop<Few<T>>>()),
            }
        }
    }
}

/// How a slide may go on at a position.
pub(crate) enum Step {
    /// Everything below this position of the block is passed.
    To(Pos),
    /// Not beyond here.
    Stop,
}

impl<T> Block<T> {
    pub(crate) fn new(made_for: Pos, height: usize, dense: bool) -> *mut Self {
        let new = Box::into_raw(Box::new(Self {
            own: ptr::null_mut(),
            made_for,
            made: AtomicWord::new(0),
            refs: AtomicU32::new(2),
            doomed: AtomicU32::new(0),
            next: Link::new(),
            tower: (0..height).map(|_| Link::new()).collect(),
            dense,
            top: AtomicPtr::new(ptr::null_mut()),
            inline: Slot::new(Lap::new(INLINE)),
        }));
        // SAFETY: just allocated, and nobody else has it.
        unsafe { (*new).own = new };
        new
    }

    /// The pointer to free it by.
    pub(crate) fn own(&self) -> *mut Self {
        self.own
    }

    /// Positions `BLOCK * key` and on.
    #[inline(always)]
    pub(crate) fn key(&self) -> u64 {
        key(self.made_for)
    }

    #[inline(always)]
    pub(crate) fn first(&self) -> Pos {
        first_of(self.made_for)
    }

    /// One more party has the block, unless it is about to be freed.
    pub(crate) fn keep(&self) -> bool {
        keep(&self.refs)
    }

    /// One party less; true for the last.
    pub(crate) fn leave(&self) -> bool {
        // AcqRel: the last sees what the others have linked, and unlinks it.
        self.refs.fetch_add(u32::MAX, Ordering::AcqRel) == 1 || weak(Control::NoLastReference)
    }

    #[inline(always)]
    fn sealed(made: Word) -> u64 {
        u64::from(made) >> CHUNKS
    }

    /// Slots of a chunk.
    #[inline(always)]
    fn chunk_len(&self) -> u64 {
        if self.dense { BLOCK } else { CHUNK }
    }

    #[inline(always)]
    fn chunk_of(&self, pos: Pos) -> usize {
        ((pos % BLOCK) / self.chunk_len()) as usize
    }

    /// The word that has the pointer of a chunk; none while there is no body.
    #[inline(always)]
    fn word(&self, chunk: usize) -> Option<&AtomicPtr<Chunk<T>>> {
        if self.dense {
            return Some(&self.top);
        }
        let body = self.top.load(Ordering::Acquire).cast::<Body<T>>();
        // SAFETY: a body lives as long as its block.
        unsafe { body.as_ref() }.map(|body| &body.0[chunk])
    }

    /// The pointer of a chunk, if it has one.
    #[inline(always)]
    fn chunk(&self, chunk: usize) -> *mut Chunk<T> {
        self.word(chunk).map_or(ptr::null_mut(), |word| word.load(Ordering::Acquire))
    }

    #[inline(always)]
    fn inline_place(&self) -> Place<'_, T> {
        Place { slot: &self.inline, lap: Lap::new(INLINE), pos: self.made_for }
    }

    /// The place of `pos` in a chunk.
    ///
    /// # Safety
    /// `chunk` is this block's, not given back when the caller was pinned, and the pin lasts for `'p`.
    #[inline(always)]
    unsafe fn place_in<'p>(&self, chunk: *mut Chunk<T>, pos: Pos) -> Place<'p, T>
    where
        T: 'p,
    {
        // SAFETY: promised by the caller.
        unsafe { Chunk::place(chunk, pos, self.dense) }
    }

    /// The place of a position of this block.
    #[inline(always)]
    pub(crate) fn find<'p>(&'p self, pos: Pos, _: &'p Pin) -> Result<Place<'p, T>, Elsewhere> {
        if pos == self.made_for {
            return Ok(self.inline_place());
        }
        let chunk = self.chunk(self.chunk_of(pos));
        if chunk.is_null() {
            let sealed = Self::sealed(self.made.load(Ordering::Acquire)) > pos % BLOCK;
            Err(if sealed { Elsewhere::Passed } else { Elsewhere::Nowhere })
        } else if chunk == Chunk::GIVEN_BACK {
            Err(Elsewhere::Passed)
        } else {
            // SAFETY: found under the pin.
            Ok(unsafe { self.place_in(chunk, pos) })
        }
    }

    /// Makes the place of a position of this block.
    #[cold]
    pub(crate) fn make<'p>(&'p self, pos: Pos, _: &'p Pin) -> Result<Place<'p, T>, Taken> {
        let index = self.chunk_of(pos);
        let mut made = self.made.load(Ordering::Acquire);
        loop {
            if made & 1 << index != 0 {
                break;
            }
            if Self::sealed(made) > pos % BLOCK {
                return Err(Taken::Passed);
            }
            let with = made | 1 << index;
            match self.made.compare_exchange(made, with, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => made = with,
                Err(seen) => made = seen,
            }
        }
        // Whoever comes here, its maker or another put that does not wait for it: while the chunk
        // has no pointer no slide passes it, so what is sealed of it stands still.
        let sealed = if weak(Control::ChunkForgetsSeal) { 0 } else { Self::sealed(made) };
        let chunk = self.new_chunk(index, sealed);
        let word = self.make_word(index);
        let null = ptr::null_mut();
        if weak(Control::ChunkByStore) {
            word.store(chunk, Ordering::Release);
        } else if let Err(other) =
            word.compare_exchange(null, chunk, Ordering::AcqRel, Ordering::Acquire)
        {
            // SAFETY: never shown to anybody.
            unsafe { self.free_chunk(chunk) };
            if other == Chunk::GIVEN_BACK {
                return Err(Taken::Passed);
            }
            // SAFETY: found under the caller's pin.
            return Ok(unsafe { self.place_in(other, pos) });
        }
        // SAFETY: just made, and given back only after this pin.
        Ok(unsafe { self.place_in(chunk, pos) })
    }

    /// A chunk of open slots, but for those of the block's first `sealed` positions.
    fn new_chunk(&self, index: usize, sealed: u64) -> *mut Chunk<T> {
        let chunk: *mut Chunk<T> = match self.dense {
            true => Box::into_raw(Box::<All<T>>::new_uninit()).cast(),
            false => Box::into_raw(Box::<Few<T>>::new_uninit()).cast(),
        };
        // Written where it is: as a value it would be copied, room for messages included.
        // SAFETY: just allocated with so many slots, and each field is written once.
        unsafe {
            (&raw mut (*chunk).block).write(self);
            (&raw mut (*chunk).made_for).write(self.made_for);
            if self.dense {
                let all = chunk.cast::<All<T>>();
                (&raw mut (*all).refs).write(AtomicU32::new(1));
                (&raw mut (*all).filled).write(AtomicU32::new(0));
                (&raw mut (*all).finished).write(AtomicU32::new(0));
            }
            let (slots, len) = (Chunk::slots(chunk, self.dense), self.chunk_len());
            for (at, pos) in (index as u64 * len..).take(len as usize).enumerate() {
                let done = u64::from(pos < sealed);
                slots.add(at).write(Slot::new(Lap::new(lap_in_chunk(pos, self.dense) + done)));
            }
        }
        chunk
    }

    /// # Safety
    /// The chunk is this block's, nobody has it, and it is freed once.
    unsafe fn free_chunk(&self, chunk: *mut Chunk<T>) {
        // SAFETY: promised by the caller; allocated with so many slots.
        unsafe {
            match self.dense {
                true => drop(Box::from_raw(chunk.cast::<All<T>>())),
                false => drop(Box::from_raw(chunk.cast::<Few<T>>())),
            }
        }
    }

    /// The word for the pointer of a chunk, made if need be.
    fn make_word(&self, index: usize) -> &AtomicPtr<Chunk<T>> {
        if let Some(word) = self.word(index) {
            return word;
        }
        let new: Body<T> = Body(core::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())));
        let new = Box::into_raw(Box::new(new));
        let (none, order) = (ptr::null_mut(), Ordering::AcqRel);
        let body = match self.top.compare_exchange(none, new.cast(), order, Ordering::Acquire) {
            Ok(_) => new,
            Err(other) => {
                // SAFETY: never shown to anybody.
                drop(unsafe { Box::from_raw(new) });
                other.cast()
            }
        };
        // SAFETY: a body lives as long as its block.
        unsafe { &(*body).0[index] }
    }

    /// Shows the places that exist in `[from, to)` of this block, ascending.
    #[inline(always)]
    pub(crate) fn scan<'p, B>(
        &'p self,
        from: Pos,
        to: Pos,
        _: &'p Pin,
        visit: &mut impl FnMut(Place<'p, T>) -> core::ops::ControlFlow<B>,
    ) -> core::ops::ControlFlow<B> {
        let (mut pos, to) = (from.max(self.first()), to.min(self.first() + BLOCK));
        let (made_for, dense, len) = (self.made_for, self.dense, self.chunk_len());
        let (mut chunk, mut end) = (Chunk::GIVEN_BACK, pos);
        // `visit` is called at one place, so that it is compiled into this.
        while pos < to {
            let place = if pos == made_for {
                self.inline_place()
            } else {
                if pos >= end {
                    // Its pointer once for all of it: a chunk that is made meanwhile counts as not
                    // there, and all slots of one that is given back are done.
                    end = (pos / len + 1) * len;
                    chunk = match self.word(self.chunk_of(pos)) {
                        Some(word) => word.load(Ordering::Acquire),
                        None => {
                            end = self.first() + BLOCK; // no chunk at all
                            ptr::null_mut()
                        }
                    };
                }
                if chunk.is_null() || chunk == Chunk::GIVEN_BACK {
                    // On to the next chunk, or the inline slot if that comes first.
                    let inline = pos < made_for && made_for < end;
                    pos = if inline { made_for } else { end };
                    continue;
                }
                // SAFETY: found under the pin.
                unsafe { Chunk::place(chunk, pos, dense) }
            };
            pos = place.pos + 1;
            visit(place)?;
        }
        core::ops::ControlFlow::Continue(())
    }

    /// How far the watermark may pass, from `pos` on, at most to `to`. Seals what was never
    /// admitted below `seal`.
    #[inline(always)]
    pub(crate) fn slide(&self, mut pos: Pos, to: Pos, seal: Pos, pin: &Pin) -> Pos {
        let (made_for, dense, len) = (self.made_for, self.dense, self.chunk_len());
        while pos < to {
            let chunk = self.chunk(self.chunk_of(pos));
            if chunk.is_null() || chunk == Chunk::GIVEN_BACK {
                match self.pass(pos, seal, pin) {
                    // What a snapshot has sealed may have been given back beyond the end.
                    Step::To(next) => pos = next.min(to),
                    Step::Stop => return pos,
                }
                continue;
            }
            let end = to.min((pos / len + 1) * len);
            while pos < end {
                let place = match pos == made_for {
                    true => self.inline_place(),
                    // SAFETY: found under the pin.
                    false => unsafe { Chunk::place(chunk, pos, dense) },
                };
                if !pass(&place, seal) {
                    return pos;
                }
                pos += 1;
            }
        }
        pos
    }

    /// May the watermark pass `pos`? Seals what was never admitted below `seal`.
    fn pass(&self, pos: Pos, seal: Pos, pin: &Pin) -> Step {
        if let Ok(place) = self.find(pos, pin) {
            return if pass(&place, seal) { Step::To(pos + 1) } else { Step::Stop };
        }
        let index = self.chunk_of(pos);
        let mut made = self.made.load(Ordering::Acquire);
        loop {
            if made & 1 << index != 0 {
                let given_back = self.chunk(index) == Chunk::GIVEN_BACK;
                // Being made: a put is at an offset of it, as good as filling. What lies below that
                // offset waits for the slide of whoever finishes or seals it: it has the put's own
                // message, or, when the put is refused, the one that it was refused for, and both
                // come after this look.
                return match self.find(pos, pin) {
                    // All of the chunk is done, up to the inline slot.
                    _ if given_back => {
                        Step::To(self.before_inline(pos, (index as u64 + 1) * self.chunk_len()))
                    }
                    Ok(place) if pass(&place, seal) => Step::To(pos + 1),
                    _ => Step::Stop,
                };
            }
            let sealed = Self::sealed(made);
            if sealed > pos % BLOCK {
                return Step::To(pos + 1);
            }
            if pos >= seal {
                return Step::Stop;
            }
            // Up to the seal, the next chunk that is made, or the inline slot.
            let later = made & !((2 << index) - 1) & ((1 << CHUNKS) - 1);
            let to = match later {
                0 => BLOCK,
                later => u64::from(later.trailing_zeros()) * self.chunk_len(),
            };
            let to = self.before_inline(pos, to.min(seal - self.first())) - self.first();
            let with = (to << CHUNKS) as Word | made & ((1 << CHUNKS) - 1);
            match self.made.compare_exchange(made, with, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    hit(Branch::Sealed);
                    return Step::To(self.first() + to);
                }
                Err(seen) => made = seen,
            }
        }
    }

    /// The position `to` of this block counted from its first, or the inline slot's if that lies
    /// between it and `pos`.
    fn before_inline(&self, pos: Pos, to: u64) -> Pos {
        let to = self.first() + to;
        if self.made_for > pos { to.min(self.made_for) } else { to }
    }

    /// Where a slot is, by one of its laps.
    ///
    /// # Safety
    /// `slot` is a slot of a block that is alive.
    #[inline(always)]
    unsafe fn home<'p>(slot: &Slot<T>, lap: Lap) -> Home<'p, T> {
        let slot_ptr: *const Slot<T> = slot;
        match lap.number() / 2 {
            0 => {
                let block = slot_ptr.wrapping_byte_sub(core::mem::offset_of!(Block<T>, inline));
                // SAFETY: the inline slot is in it.
                Home::Block(unsafe { &*block.cast() })
            }
            number => {
                // As in `lap_in_chunk`.
                let at = number - 1;
                let dense = at >= BLOCK;
                let index = if dense { at - BLOCK } else { at % CHUNK };
                let first = slot_ptr.wrapping_sub(index as usize);
                let before = match dense {
                    true => core::mem::offset_of!(All<T>, slots),
                    false => core::mem::offset_of!(Few<T>, slots),
                };
                let chunk = first.wrapping_byte_sub(before);
                let chunk = chunk.cast::<Chunk<T>>().cast_mut();
                // SAFETY: the slot is in this chunk, which lives at least as long.
                let made_for = unsafe { (*chunk).made_for };
                Home::Chunk { chunk, dense, made_for, pos: first_of(made_for) + at % BLOCK }
            }
        }
    }

    /// The block that a slot is in.
    ///
    /// # Safety
    /// `slot` is a slot of a block that is alive.
    #[inline(always)]
    pub(crate) unsafe fn of(slot: &Slot<T>) -> *const Block<T> {
        // SAFETY: promised by the caller.
        match unsafe { Self::home(slot, slot.state().lap()) } {
            Home::Block(block) => block,
            // SAFETY: as above.
            Home::Chunk { chunk, .. } => unsafe { (*chunk).block },
        }
    }

    /// The position of the message in a slot.
    ///
    /// # Safety
    /// `slot` is a slot of a block that is alive.
    #[inline(always)]
    pub(crate) unsafe fn position_of(slot: &Slot<T>) -> Pos {
        // SAFETY: promised by the caller.
        match unsafe { Self::home(slot, slot.state().lap()) } {
            Home::Block(block) => block.made_for,
            Home::Chunk { pos, .. } => pos,
        }
    }

    /// The place of `pos`, right after the last one, when the same chunk has both.
    ///
    /// # Safety
    /// The last was found under a pin that lasts for `'p`.
    #[inline(always)]
    pub(crate) unsafe fn beside<'p>(last: Place<'p, T>, pos: Pos) -> Option<Place<'p, T>> {
        // SAFETY: promised by the caller.
        let Home::Chunk { chunk, dense, made_for, .. } =
            (unsafe { Self::home(last.slot, last.lap) })
        else {
            return None;
        };
        if made_for == pos || pos.is_multiple_of(if dense { BLOCK } else { CHUNK }) {
            return None;
        }
        check(chunk);
        // SAFETY: as above. If the chunk was given back meanwhile, its slots are done for ever.
        Some(unsafe { Chunk::place(chunk, pos, dense) })
    }

    /// A put has filled this place: counts it.
    ///
    /// # Safety
    /// It was found under a pin that lasts.
    #[inline(always)]
    pub(crate) unsafe fn filled(place: Place<'_, T>) {
        // SAFETY: promised by the caller.
        if let Home::Chunk { chunk, dense: true, .. } = unsafe { Self::home(place.slot, place.lap) }
        {
            // SAFETY: as above.
            let filled = unsafe { &(*chunk.cast::<All<T>>()).filled };
            // Relaxed: before the message is ready, and so before it is finished. Not a
            // read-modify-write: see the field.
            filled.store(filled.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// The slot's chunk if all its slots are done, sealing gaps below `seal`.
    ///
    /// Two finishers of one chunk of four may each miss the other here; then it stays until its
    /// block is passed.
    ///
    /// # Safety
    /// `slot` is a slot of a block that was alive when `pin` was made.
    pub(crate) unsafe fn done<'p>(
        slot: &Slot<T>,
        seal: Pos,
        _: &'p Pin,
    ) -> Option<ChunkRef<'p, T>> {
        // SAFETY: promised by the caller.
        let Home::Chunk { chunk, dense, made_for, pos: own } =
            (unsafe { Self::home(slot, slot.state().lap()) })
        else {
            return None;
        };
        check(chunk);
        if dense {
            // SAFETY: as above.
            let all = unsafe { &*chunk.cast::<All<T>>() };
            // AcqRel: of two finishers the later sees what the earlier has finished. Where no
            // slot is open but gaps the last one looks, and the others need not.
            let finished = all.finished.fetch_add(1, Ordering::AcqRel) + 1;
            if finished >= All::<T>::USED - u32::from(weak(Control::ChunkGivenBackEarly)) {
                // Each slot is used once, so all are done, and none of them need be looked at.
                hit(Branch::ChunkCounted);
                // SAFETY: as above.
                return Some(ChunkRef { block: unsafe { &*(*chunk).block }, index: 0, chunk });
            }
            if finished < all.filled.load(Ordering::Relaxed) {
                return None;
            }
        }
        // SAFETY: as above.
        let block = unsafe { &*(*chunk).block };
        let first = own / block.chunk_len() * block.chunk_len();
        // From the last one on: if that was not put yet, there is no more to look at.
        let mut places = (first..first + block.chunk_len()).rev().filter(|&pos| {
            // The slot beside the inline one is never used.
            pos != own && pos != made_for
        });
        let over = places.all(|pos| {
            // SAFETY: the chunk was not given back when the call was pinned.
            let place = unsafe { Chunk::place(chunk, pos, dense) };
            let filling = place.slot.state().phase() == Phase::Filling;
            pass(&place, seal) || weak(Control::GivenBackFilling) && filling
        });
        if !over {
            return None;
        }
        Some(ChunkRef { block, index: block.chunk_of(own), chunk })
    }

    /// What an entry of the table may show beside the block itself.
    pub(crate) fn shown_chunk(&self) -> Option<Linked<Self>> {
        let chunk = self.top.load(Ordering::Acquire);
        let shown = self.dense && !chunk.is_null() && chunk != Chunk::GIVEN_BACK;
        shown.then(|| Linked::to_chunk(chunk))
    }

    /// For the table: the chunk that has all slots of this block, with a reference to it.
    pub(crate) fn keep_chunk<'p>(&'p self, _: &'p Pin) -> Option<ChunkRef<'p, T>> {
        let chunk = self.top.load(Ordering::Acquire);
        if !self.dense || chunk.is_null() || chunk == Chunk::GIVEN_BACK {
            return None;
        }
        check(chunk);
        // SAFETY: not given back when it was read, under the pin.
        let kept = keep(unsafe { &(*chunk.cast::<All<T>>()).refs });
        kept.then_some(ChunkRef { block: self, index: 0, chunk })
    }

    /// Are the last four positions in use, or were they? What comes after them then probably will
    /// be too. (Those that were sealed count too: that costs memory, once.)
    pub(crate) fn ends_dense(&self, pin: &Pin) -> bool {
        (self.first() + BLOCK - CHUNK..self.first() + BLOCK).all(|pos| {
            self.find(pos, pin).is_ok_and(|place| {
                let state = place.slot.state();
                state.phase() != Phase::Empty || state.is_done(place.lap)
            })
        })
    }

    /// Shows every slot below `to` that exists, whatever is in it.
    pub(crate) fn slots(&self, to: Pos, mut visit: impl FnMut(&Slot<T>, Lap)) {
        if self.made_for < to {
            visit(&self.inline, Lap::new(INLINE + 1));
        }
        for index in 0..(BLOCK / self.chunk_len()) as usize {
            let chunk = self.chunk(index);
            if chunk.is_null() || chunk == Chunk::GIVEN_BACK {
                continue;
            }
            check(chunk);
            let first = self.first() + index as u64 * self.chunk_len();
            for pos in first..first + self.chunk_len() {
                if pos >= to {
                    return;
                }
                // SAFETY: the chunk is this block's, under the caller's pin.
                let place = unsafe { self.place_in(chunk, pos) };
                visit(place.slot, Lap::new(place.lap.number() + 1));
            }
        }
    }
}

/// May the watermark pass this slot? Seals it when nothing was admitted and it lies below `seal`.
#[inline(always)]
fn pass<T>(place: &Place<'_, T>, seal: Pos) -> bool {
    let state = place.slot.state();
    if state.is_done(place.lap) {
        return true;
    }
    match state.phase() {
        Phase::Empty if place.pos < seal => {
            hit(Branch::Sealed);
            weak(Control::GapUnsealed) || place.slot.raise(Lap::new(place.lap.number() + 1))
        }
        Phase::Filling => weak(Control::SlidePassesFilling),
        _ => false,
    }
}

impl<T> Drop for Block<T> {
    fn drop(&mut self) {
        for index in 0..(BLOCK / self.chunk_len()) as usize {
            let chunk = self.chunk(index);
            if !chunk.is_null() && chunk != Chunk::GIVEN_BACK {
                // SAFETY: `&mut self`: nobody else has its chunks, and each is freed once.
                unsafe { self.free_chunk(chunk) };
            }
        }
        let top = self.top.load(Ordering::Relaxed);
        if !self.dense && !top.is_null() {
            // SAFETY: as above; it is a body, and was allocated as one.
            drop(unsafe { Box::from_raw(top.cast::<Body<T>>()) });
        }
    }
}
