//! Blocks: 64 consecutive positions, their slots made as they are needed.
//!
//! A block holds one slot inline, for the position that made it: a sparse log needs no more. The
//! other slots come in chunks of four. The word `made` says which chunks are made or being made,
//! and how many positions are *sealed* without a chunk; both are decided by exchanges of that one
//! word, so that a slot is either made before it is sealed, and then sealed in place, or refused.
//!
//! A chunk whose slots are all done can be given back before its block is passed: its pointer is
//! then [`Body::GIVEN_BACK`], which reads as done.

use alloc::boxed::Box;
use core::ptr::{self, NonNull};

use crate::control::{Branch, Control, hit, weak};
use crate::engine::Elsewhere;
use crate::position::Pos;
use crate::skiplist::reclaim::{Pin, check};
use crate::slot::{Lap, Phase, Place, Slot, Taken};
use crate::sync::{AtomicPtr, AtomicU32, AtomicWord, Ordering, Word};

/// Positions of a block.
pub(crate) const BLOCK: u64 = 64;
/// Slots of a chunk: more would cost a sparse log memory, fewer a dense one allocations.
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

/// A block.
pub(crate) struct Block<T> {
    /// Itself, as it was allocated: freed through this, since a reference may not free.
    own: *mut Block<T>,
    /// The position that made it: the inline slot's.
    made_for: Pos,
    made: AtomicWord,
    /// Who must have done with the block before it is freed: its place in level 0, its inserter,
    /// and finders that keep it in the table for a moment.
    refs: AtomicU32,
    /// Slots that lending leases of an ended assignment still have.
    pub(crate) doomed: AtomicU32,
    pub(crate) next: Link<Block<T>>,
    /// Its links in the upper levels.
    pub(crate) tower: Box<[Link<Block<T>>]>,
    body: AtomicPtr<Body<T>>,
    inline: Slot<T>,
}

/// The chunks of a block.
struct Body<T>([AtomicPtr<Chunk<T>>; CHUNKS]);

impl<T> Body<T> {
    /// The pointer of a chunk that was given back: all its slots are done.
    const GIVEN_BACK: *mut Chunk<T> = ptr::without_provenance_mut(1);
}

/// Four slots.
struct Chunk<T> {
    block: *const Block<T>,
    slots: [Slot<T>; CHUNK as usize],
}

/// The lap of the inline slot. A slot of the skip list is used once, so its lap only has to tell
/// "open" from "done"; the rest of it says where the slot is in its block or chunk.
const INLINE: u64 = 0;

/// The lap of the slot of `pos` in a chunk.
#[inline(always)]
const fn lap_in_chunk(pos: Pos) -> u64 {
    2 * (1 + pos % BLOCK)
}

/// How a slide may go on at a position.
pub(crate) enum Step {
    /// Everything below this position of the block is passed.
    To(Pos),
    /// Not beyond here.
    Stop,
}

impl<T> Block<T> {
    pub(crate) fn new(made_for: Pos, height: usize) -> *mut Self {
        let new = Box::into_raw(Box::new(Self {
            own: ptr::null_mut(),
            made_for,
            made: AtomicWord::new(0),
            refs: AtomicU32::new(2),
            doomed: AtomicU32::new(0),
            next: Link::new(),
            tower: (0..height).map(|_| Link::new()).collect(),
            body: AtomicPtr::new(ptr::null_mut()),
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
        self.made_for & !(BLOCK - 1)
    }

    /// One more party has the block, unless it is about to be freed.
    pub(crate) fn keep(&self) -> bool {
        let mut refs = self.refs.load(Ordering::Relaxed);
        while refs > 0 {
            let kept =
                self.refs.compare_exchange(refs, refs + 1, Ordering::AcqRel, Ordering::Relaxed);
            match kept {
                Ok(_) => return true,
                Err(seen) => refs = seen,
            }
        }
        false
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

    fn chunk_of(&self, pos: Pos) -> usize {
        ((pos % BLOCK) / CHUNK) as usize
    }

    /// The pointer of a chunk, if it has one.
    #[inline(always)]
    fn chunk(&self, chunk: usize) -> *mut Chunk<T> {
        let body = self.body.load(Ordering::Acquire);
        // SAFETY: a body lives as long as its block.
        match unsafe { body.as_ref() } {
            None => ptr::null_mut(),
            Some(body) => body.0[chunk].load(Ordering::Acquire),
        }
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
    unsafe fn place_in<'p>(chunk: *mut Chunk<T>, pos: Pos) -> Place<'p, T>
    where
        T: 'p,
    {
        check(chunk);
        let index = pos % CHUNK;
        // SAFETY: promised by the caller; the index is below CHUNK. Made from the chunk's own
        // pointer, so that it leads back to the chunk.
        let slot = unsafe { &*(&raw const (*chunk).slots).cast::<Slot<T>>().add(index as usize) };
        Place { slot, lap: Lap::new(lap_in_chunk(pos)), pos }
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
        } else if chunk == Body::GIVEN_BACK {
            Err(Elsewhere::Passed)
        } else {
            // SAFETY: found under the pin.
            Ok(unsafe { Self::place_in(chunk, pos) })
        }
    }

    /// The place of a position of this block, made if need be.
    #[inline(always)]
    pub(crate) fn open<'p>(&'p self, pos: Pos, pin: &'p Pin) -> Result<Place<'p, T>, Taken> {
        match self.find(pos, pin) {
            Ok(place) => Ok(place),
            Err(Elsewhere::Passed) => Err(Taken::Passed),
            Err(_) => self.make(pos),
        }
    }

    #[cold]
    fn make<'p>(&'p self, pos: Pos) -> Result<Place<'p, T>, Taken> {
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
        let body = self.body();
        // Whoever comes here, its maker or another put that does not wait for it: while the chunk
        // has no pointer no slide passes it, so what is sealed of it stands still.
        let sealed = if weak(Control::ChunkForgetsSeal) { 0 } else { Self::sealed(made) };
        let first = index as u64 * CHUNK;
        let chunk = Box::into_raw(Box::<Chunk<T>>::new_uninit()).cast::<Chunk<T>>();
        // Written where it is: as a value it would be copied, room for messages included.
        // SAFETY: just allocated, and each field is written once.
        unsafe {
            (&raw mut (*chunk).block).write(self);
            for at in 0..CHUNK {
                let done = u64::from(first + at < sealed);
                let slot = Slot::new(Lap::new(lap_in_chunk(first + at) + done));
                (&raw mut (*chunk).slots).cast::<Slot<T>>().add(at as usize).write(slot);
            }
        }
        let place = &body.0[index];
        let null = ptr::null_mut();
        if weak(Control::ChunkByStore) {
            place.store(chunk, Ordering::Release);
        } else if let Err(other) =
            place.compare_exchange(null, chunk, Ordering::AcqRel, Ordering::Acquire)
        {
            // SAFETY: never shown to anybody.
            drop(unsafe { Box::from_raw(chunk) });
            if other == Body::GIVEN_BACK {
                return Err(Taken::Passed);
            }
            // SAFETY: found under the caller's pin.
            return Ok(unsafe { Self::place_in(other, pos) });
        }
        // SAFETY: just made, and given back only after this pin.
        Ok(unsafe { Self::place_in(chunk, pos) })
    }

    fn body(&self) -> &Body<T> {
        let body = self.body.load(Ordering::Acquire);
        // SAFETY: a body lives as long as its block.
        if let Some(body) = unsafe { body.as_ref() } {
            return body;
        }
        let new: Body<T> = Body(core::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())));
        let new = Box::into_raw(Box::new(new));
        match self.body.compare_exchange(body, new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: as above.
            Ok(_) => unsafe { &*new },
            Err(other) => {
                // SAFETY: never shown to anybody.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: as above.
                unsafe { &*other }
            }
        }
    }

    /// Shows the places that exist in `[from, to)` of this block, ascending.
    #[inline(always)]
    pub(crate) fn scan<'p, B>(
        &'p self,
        from: Pos,
        to: Pos,
        pin: &'p Pin,
        visit: &mut impl FnMut(Place<'p, T>) -> core::ops::ControlFlow<B>,
    ) -> core::ops::ControlFlow<B> {
        let (mut pos, to) = (from.max(self.first()), to.min(self.first() + BLOCK));
        let bodiless = self.body.load(Ordering::Acquire).is_null();
        // `visit` is called at one place, so that it is compiled into this.
        while pos < to {
            let place = if bodiless {
                if self.made_for < pos || self.made_for >= to {
                    break;
                }
                self.inline_place()
            } else {
                match self.find(pos, pin) {
                    Ok(place) => place,
                    Err(_) => {
                        // On to the next chunk, or the inline slot if that comes first.
                        let next = (pos / CHUNK + 1) * CHUNK;
                        let inline = pos < self.made_for && self.made_for < next;
                        pos = if inline { self.made_for } else { next };
                        continue;
                    }
                }
            };
            pos = place.pos + 1;
            visit(place)?;
        }
        core::ops::ControlFlow::Continue(())
    }

    /// May the watermark pass `pos`? Seals what was never admitted below `seal`.
    #[inline(always)]
    pub(crate) fn pass(&self, pos: Pos, seal: Pos, pin: &Pin) -> Step {
        if let Ok(place) = self.find(pos, pin) {
            return if pass(&place, seal) { Step::To(pos + 1) } else { Step::Stop };
        }
        let index = self.chunk_of(pos);
        let mut made = self.made.load(Ordering::Acquire);
        loop {
            if made & 1 << index != 0 {
                let given_back = self.chunk(index) == Body::GIVEN_BACK;
                // Being made: a put is at an offset of it, as good as filling. What lies below that
                // offset waits for the slide of whoever finishes or seals it: it has the put's own
                // message, or, when the put is refused, the one that it was refused for, and both
                // come after this look.
                return match self.find(pos, pin) {
                    _ if given_back => Step::To(pos + 1),
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
            let mut to = match later {
                0 => BLOCK,
                later => u64::from(later.trailing_zeros()) * CHUNK,
            };
            to = to.min(seal - self.first());
            if self.made_for > pos {
                to = to.min(self.made_for - self.first());
            }
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

    /// The slot's chunk, when it is in one, and its block.
    ///
    /// # Safety
    /// `slot` is a slot of a block that is alive.
    #[inline(always)]
    unsafe fn home(slot: &Slot<T>) -> (Option<NonNull<Chunk<T>>>, *const Block<T>) {
        let slot_ptr: *const Slot<T> = slot;
        match slot.state().lap().number() / 2 {
            0 => {
                let block = slot_ptr.wrapping_byte_sub(core::mem::offset_of!(Block<T>, inline));
                (None, block.cast())
            }
            number => {
                let first = slot_ptr.wrapping_sub((number - 1) as usize % CHUNK as usize);
                let chunk = first.wrapping_byte_sub(core::mem::offset_of!(Chunk<T>, slots));
                let chunk = chunk.cast::<Chunk<T>>().cast_mut();
                // SAFETY: the slot is in this chunk, which lives at least as long.
                (NonNull::new(chunk), unsafe { (*chunk).block })
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
        unsafe { Self::home(slot) }.1
    }

    /// The position of the message in a slot.
    ///
    /// # Safety
    /// `slot` is a slot of a block that is alive.
    pub(crate) unsafe fn position_of(slot: &Slot<T>) -> Pos {
        // SAFETY: promised by the caller.
        let block = unsafe { &*Self::of(slot) };
        match slot.state().lap().number() / 2 {
            0 => block.made_for,
            number => block.first() + number - 1,
        }
    }

    /// The place of `pos`, right after that of a slot, when the same chunk has both.
    ///
    /// # Safety
    /// `slot` was found under a pin that lasts for `'p`.
    #[inline(always)]
    pub(crate) unsafe fn beside<'p>(slot: &Slot<T>, pos: Pos) -> Option<Place<'p, T>>
    where
        T: 'p,
    {
        if pos.is_multiple_of(CHUNK) {
            return None;
        }
        // SAFETY: promised by the caller.
        let (chunk, block) = unsafe { Self::home(slot) };
        let chunk = chunk?;
        // SAFETY: as above. If the chunk was given back meanwhile, its slots are done for ever.
        unsafe { ((*block).made_for != pos).then(|| Self::place_in(chunk.as_ptr(), pos)) }
    }

    /// The key of the block that a slot is in.
    ///
    /// # Safety
    /// `slot` is a slot of a block that is alive.
    #[inline(always)]
    pub(crate) unsafe fn key_of(slot: &Slot<T>) -> u64 {
        // SAFETY: promised by the caller.
        unsafe { &*Self::of(slot) }.key()
    }

    /// Gives the slot's chunk back if all its slots are done, sealing gaps below `seal`.
    ///
    /// Two finishers of one chunk may each miss the other here; then it stays until its block is
    /// passed.
    ///
    /// # Safety
    /// `slot` is a slot of a block that was alive when `pin` was made.
    pub(crate) unsafe fn give_back(slot: &Slot<T>, seal: Pos, pin: &Pin) {
        // SAFETY: promised by the caller.
        let (chunk, block) = unsafe { Self::home(slot) };
        let Some(chunk) = chunk else { return };
        // SAFETY: as above.
        let block = unsafe { &*block };
        check(chunk.as_ptr());
        // SAFETY: as above.
        let slots = unsafe { &(*chunk.as_ptr()).slots };
        let own = block.first() + slot.state().lap().number() / 2 - 1;
        let first = own / CHUNK * CHUNK;
        for (pos, slot) in (first..).zip(slots) {
            let place = Place { slot, lap: Lap::new(lap_in_chunk(pos)), pos };
            // The slot beside the inline one is never used.
            let unused = pos == block.made_for;
            let ignored = weak(Control::GivenBackFilling) && slot.state().phase() == Phase::Filling;
            if pos != own && !unused && !ignored && !pass(&place, seal) {
                return;
            }
        }
        let given = block.body().0[block.chunk_of(own)].compare_exchange(
            chunk.as_ptr(),
            Body::GIVEN_BACK,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        // The pointer that was stored: the slot's own leads to the chunk, but may not free it.
        if let Ok(chunk) = given {
            hit(Branch::ChunkGivenBack);
            // SAFETY: unlinked by this exchange, and all its slots are done for ever.
            unsafe { pin.retire(chunk) };
        }
    }

    /// Shows every slot below `to` that exists, whatever is in it.
    pub(crate) fn slots(&self, to: Pos, mut visit: impl FnMut(&Slot<T>, Lap)) {
        if self.made_for < to {
            visit(&self.inline, Lap::new(INLINE + 1));
        }
        for index in 0..CHUNKS {
            let chunk = self.chunk(index);
            if chunk.is_null() || chunk == Body::GIVEN_BACK {
                continue;
            }
            check(chunk);
            for at in 0..CHUNK {
                let pos = self.first() + index as u64 * CHUNK + at;
                if pos >= to {
                    return;
                }
                // SAFETY: the chunk is this block's, under the caller's pin.
                let place = unsafe { Self::place_in(chunk, pos) };
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
        let body = self.body.load(Ordering::Relaxed);
        if body.is_null() {
            return;
        }
        // SAFETY: `&mut self`: nobody else has the body or its chunks, and each is freed once.
        let body = unsafe { Box::from_raw(body) };
        for chunk in &body.0 {
            let chunk = chunk.load(Ordering::Relaxed);
            if !chunk.is_null() && chunk != Body::GIVEN_BACK {
                // SAFETY: as above.
                drop(unsafe { Box::from_raw(chunk) });
            }
        }
    }
}
