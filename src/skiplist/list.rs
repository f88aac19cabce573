//! The list of blocks: level 0, which is the truth, and the shortcuts above it.
//!
//! # Level 0
//!
//! Sorted by key. Blocks are linked in anywhere, and leave only at the front, passed by the
//! watermark; there is no other removal. Passing a block *freezes* its `next`: from then on no
//! block can come between it and its successor, so every position in that gap is sealed, by one
//! exchange. The last block is never passed. An assignment begins with a block, so that the first
//! puts may come in any order.
//!
//! # Shortcuts
//!
//! The upper levels are lists of their own (after Pugh, and Fraser for the marks), emptied from
//! the front too; finding a key, and where a new block belongs, goes down through them. A table
//! of blocks by key ([`table`]) takes most calls there at once, and `last` the appends of a sparse
//! log.
//!
//! [`table`]: crate::skiplist::table
//!
//! # Reclamation
//!
//! A block has a reference for level 0 and one for whoever is linking it into shortcuts (and for a
//! moment whoever shows it in the table anew, or gives its one chunk back). The
//! party that drops the last one takes the block out of every shortcut (popping every key up to
//! its own from its levels), then retires it. So what a shortcut shows was not retired before the
//! caller's pin. But it may have been *passed* already, while its inserter is stopped, and then
//! its frozen `next` leads to freed memory. Therefore: a call reads the watermark after its pin,
//! and goes on from a block only if the block's key is at or above the watermark's. The passer
//! raises the watermark before it moves the front and drops its reference, so such a block, and
//! everything after it, was not retired before the pin.
//!
//! A passed block may have slots that lending leases of an ended assignment still hold. It is
//! kept among the `orphans` until the last of them is released.

use alloc::boxed::Box;
use core::ptr;

use crate::control::{Branch, Control, hit, weak};
use crate::position::Pos;
use crate::skiplist::block::{Block, ChunkRef, Link, Linked, key};
use crate::skiplist::reclaim::{Domain, Pin, check};
use crate::skiplist::table::Table;
use crate::slot::{Place, Slot, Taken};
use crate::sync::{AtomicWord, Ordering, Word, const_unless_loom};

const LEVELS: usize = if cfg!(loom) { 1 } else { 12 };

pub(crate) struct List<T> {
    front: Link<Block<T>>,
    heads: [Link<Block<T>>; LEVELS],
    table: Table<T>,
    last: Link<Block<T>>,
    /// The key that was last missed in the table.
    missed: AtomicWord,
    orphans: Link<Orphan<T>>,
    /// Last, so that what is retired outlives the blocks.
    pub(crate) domain: Domain,
}

struct Orphan<T> {
    block: *const Block<T>,
    next: *mut Orphan<T>,
}

impl<T> List<T> {
    const_unless_loom! {
        pub(crate) const fn new() -> Self {
            Self {
                front: Link::new(),
                heads: links(),
                table: Table::new(),
                last: Link::new(),
                missed: AtomicWord::new(0),
                orphans: Link::new(),
                domain: Domain::new(),
            }
        }
    }

    /// A block found under the pin.
    ///
    /// # Safety
    /// `block` is null, or was in the list or a shortcut after `pin` was made.
    #[inline(always)]
    unsafe fn alive(block: *mut Block<T>, _: &Pin) -> Option<&Block<T>> {
        check(block);
        // SAFETY: promised by the caller: it is not freed while the pin lasts.
        unsafe { block.as_ref() }
    }

    /// The first block.
    #[inline(always)]
    pub(crate) fn front<'p>(&self, pin: &'p Pin) -> Option<&'p Block<T>> {
        // SAFETY: the front is in the list.
        unsafe { Self::alive(self.front.load().target(), pin) }
    }

    /// The block after one that was not passed before the pin, or was found after such a one.
    #[inline(always)]
    pub(crate) fn after<'p>(&self, block: &'p Block<T>, pin: &'p Pin) -> Option<&'p Block<T>> {
        // SAFETY: a neighbour of such a block was not retired before the pin.
        unsafe { Self::alive(block.next.load().target(), pin) }
    }

    /// What the link of such a block held.
    pub(crate) fn get<'p>(&self, next: Linked<Block<T>>, pin: &'p Pin) -> Option<&'p Block<T>> {
        // SAFETY: as in `after`.
        unsafe { Self::alive(next.target(), pin) }
    }

    /// The last block at or below `key`, which is at or above `from`, the watermark's as read
    /// after the pin. None when all blocks lie above.
    #[inline(always)]
    pub(crate) fn at_or_below<'p>(
        &self,
        key: u64,
        from: u64,
        pin: &'p Pin,
    ) -> Option<&'p Block<T>> {
        // SAFETY: what the table shows was not retired before the pin.
        if let Some(block) = unsafe { self.table.get(key, pin).shown() }
            && block.key() == key
        {
            return Some(block);
        }
        self.search(key, from, pin)
    }

    /// The place of a position, if the table leads to it at once; otherwise its block, if the
    /// table has that.
    #[inline(always)]
    pub(crate) fn shown<'p>(
        &self,
        pos: Pos,
        pin: &'p Pin,
    ) -> Result<Place<'p, T>, Option<&'p Block<T>>> {
        let entry = self.table.get(key(pos), pin);
        // SAFETY: read under the pin.
        if let Some(place) = unsafe { entry.place(pos) } {
            return Ok(place);
        }
        // SAFETY: as above.
        Err(unsafe { entry.shown() }.filter(|block| block.key() == key(pos)))
    }

    /// As [`List::at_or_below`], for a key that the table does not show.
    #[inline(never)]
    pub(crate) fn search<'p>(&self, key: u64, from: u64, pin: &'p Pin) -> Option<&'p Block<T>> {
        let usable = |block: &&Block<T>| {
            (block.key() >= from || weak(Control::ThroughPassed)) && block.key() <= key
        };
        // SAFETY: as in `at_or_below`.
        if let Some(block) = unsafe { self.table.get_older(key, pin).shown() }
            && block.key() == key
        {
            hit(Branch::FoundInOlder);
            self.show(block, pin);
            return Some(block);
        }
        // SAFETY: as in `at_or_below`.
        let last = unsafe { Self::alive(self.last.load().target(), pin) }.filter(usable);
        // SAFETY: as above.
        let before = || unsafe { self.table.get(key.wrapping_sub(1), pin).shown() }.filter(usable);
        let start = last.or_else(before);
        let mut block =
            match start.filter(|block| key - block.key() <= 1 || self.is_last(block, key, pin)) {
                Some(block) => block,
                None => match self.descend(key, from, pin, |_, _| ()) {
                    Some(block) => block,
                    None => self.front(pin)?,
                },
            };
        if block.key() > key {
            return None;
        }
        while let Some(next) = self.after(block, pin).filter(|next| next.key() <= key) {
            block = next;
        }
        if block.key() == key {
            self.remember(block, pin);
        }
        Some(block)
    }

    /// Is there nothing between `block` and `key`?
    fn is_last(&self, block: &Block<T>, key: u64, pin: &Pin) -> bool {
        self.after(block, pin).is_none_or(|next| next.key() > key)
    }

    /// The last block at or below `key` that the upper levels show and that was not passed. Says
    /// of each level, from the top, after which link the key belongs.
    ///
    /// From a head, or from a block not passed, no block of a level was retired before the pin:
    /// whoever retires one moves the head beyond it first. And a block that a level shows is in
    /// every level below, or was popped from there since the pin: it is linked in from below.
    fn descend<'s, 'p: 's>(
        &'s self,
        key: u64,
        from: u64,
        pin: &'p Pin,
        mut reached: impl FnMut(usize, &'s Link<Block<T>>),
    ) -> Option<&'p Block<T>> {
        let mut start: Option<&'p Block<T>> = None;
        for level in (0..LEVELS).rev() {
            let mut link = match start {
                Some(block) => &block.tower[level],
                None => &self.heads[level],
            };
            // SAFETY: as said above.
            while let Some(next) = unsafe { Self::alive(link.load().target(), pin) } {
                if next.key() > key {
                    break;
                }
                if next.key() >= from || weak(Control::ThroughPassed) {
                    start = Some(next);
                }
                link = &next.tower[level];
            }
            reached(level, link);
        }
        start
    }

    /// Puts a block that was found without the table into it: at once where nothing is in the way,
    /// otherwise when it was missed twice in a row.
    fn remember(&self, block: &Block<T>, pin: &Pin) {
        if !self.table.get(block.key(), pin).target().is_null() {
            let missed = self.missed.load(Ordering::Relaxed);
            if missed != block.key() as Word {
                self.missed.store(block.key() as Word, Ordering::Relaxed);
                return;
            }
        }
        self.show(block, pin);
    }

    /// Puts a block into the table, as an inserter would: the entry is written while this call
    /// has a reference. If one chunk has all its slots, that is shown: whoever looks for a slot
    /// then need not look at the block.
    fn show(&self, block: &Block<T>, pin: &Pin) {
        if !block.keep() {
            return;
        }
        let (key, unkept) = (block.key(), block.shown_chunk());
        if let Some(chunk) = unkept.filter(|_| weak(Control::ChunkNotKept)) {
            self.table.set(key, chunk, pin);
        } else if let Some(chunk) = block.keep_chunk(pin) {
            self.table.set(key, chunk.linked(), pin);
            self.leave_chunk(chunk, pin);
        } else {
            self.table.set(key, Linked::to(block), pin);
        }
        self.leave(block, pin);
    }

    /// Puts the chunk that has all slots of a block into the table, if there is such a one.
    pub(crate) fn show_chunk(&self, block: &Block<T>, pin: &Pin) {
        if block.shown_chunk().is_some() {
            self.show(block, pin);
        }
    }

    /// Gives the chunk of a finished message back if that was the last one in it.
    ///
    /// # Safety
    /// `slot` is a slot of a block that was alive when `pin` was made.
    pub(crate) unsafe fn vacated(&self, slot: &Slot<T>, seal: Pos, pin: &Pin) {
        // SAFETY: promised by the caller.
        let Some(mut chunk) = (unsafe { Block::done(slot, seal, pin) }) else { return };
        let block = chunk.block;
        // Its block is not retired before the table has forgotten the chunk, which leads there.
        let keep = chunk.may_be_shown() && !weak(Control::ChunkOutlivesBlock);
        if keep && !block.keep() {
            return; // no reference is left: the chunk is freed with its block
        }
        if chunk.take() {
            self.leave_chunk(chunk, pin);
        }
        if keep {
            self.leave(block, pin);
        }
    }

    /// Drops one reference to a chunk, takes it out of the table and frees it with the last.
    /// The caller has a reference to the block, if the table may show the chunk.
    fn leave_chunk(&self, chunk: ChunkRef<'_, T>, pin: &Pin) {
        if !chunk.leave() {
            return;
        }
        if chunk.may_be_shown() && !weak(Control::ChunkStaysShown) {
            self.table.clear(chunk.block.key(), chunk.linked(), pin);
        }
        // SAFETY: the last reference is gone, and nothing shows it.
        unsafe { chunk.retire(pin) };
    }

    /// The block of `pos`, made if need be.
    pub(crate) fn open<'p>(
        &self,
        pos: Pos,
        from: u64,
        height: usize,
        pin: &'p Pin,
    ) -> Result<&'p Block<T>, Taken> {
        let found = self.at_or_below(key(pos), from, pin);
        match found {
            Some(block) if block.key() == key(pos) => Ok(block),
            before => self.insert(pos, before, from, height, pin),
        }
    }

    #[cold]
    fn insert<'p>(
        &self,
        pos: Pos,
        before: Option<&'p Block<T>>,
        from: u64,
        height: usize,
        pin: &'p Pin,
    ) -> Result<&'p Block<T>, Taken> {
        let dense =
            before.is_some_and(|before| before.key() + 1 == key(pos) && before.ends_dense(pin));
        let new = Block::new(pos, height.min(LEVELS), dense);
        // SAFETY: alive: nobody else has it before it is linked in, and nobody frees it before
        // this call has dropped its reference.
        let block = unsafe { &*new };
        let give_up = || {
            // SAFETY: never linked in.
            drop(unsafe { Box::from_raw(new) });
        };
        loop {
            let Some(before) = self.at_or_below(key(pos), from, pin) else {
                let first = self.front.load();
                match self.get(first, pin) {
                    None if self.front.exchange(first, Linked::to(new)) => break,
                    Some(first) if first.key() > key(pos) => {
                        // Below the first block: passed.
                        give_up();
                        return Err(Taken::Passed);
                    }
                    _ => continue,
                }
            };
            if before.key() == key(pos) {
                give_up();
                return Ok(before);
            }
            let next = before.next.load();
            // SAFETY: a neighbour of a block found.
            let above = unsafe { Self::alive(next.target(), pin) };
            if above.is_some_and(|above| above.key() <= key(pos)) {
                continue;
            }
            if next.is_frozen() {
                // The gap is passed: every position in it is sealed.
                hit(Branch::GapFrozen);
                give_up();
                return Err(Taken::Passed);
            }
            block.next.set(Linked::to(next.target()));
            if before.next.exchange(next, Linked::to(new)) {
                break;
            }
        }
        if weak(Control::EntryAfterReference) {
            let last = block.leave();
            self.link(block, from, pin);
            if last {
                self.unlink(block, pin);
                self.bury(block, pin);
            }
            return Ok(block);
        }
        self.link(block, from, pin);
        self.leave(block, pin);
        Ok(block)
    }

    /// Links a block into the shortcuts, by its inserter, which still has its reference. `from` is
    /// the watermark's key as read after the pin.
    fn link(&self, block: &Block<T>, from: u64, pin: &Pin) {
        self.table.came(pin);
        self.table.set(block.key(), Linked::to(block), pin);
        self.last.set(Linked::to(block));
        if block.tower.is_empty() {
            return;
        }
        let mut links = [const { None }; LEVELS];
        self.descend(block.key(), from, pin, |level, link| links[level] = Some(link));
        for (level, link) in links.into_iter().enumerate().take(block.tower.len()) {
            let mut link = link.unwrap_or(&self.heads[level]);
            loop {
                let next = link.load();
                if next.is_frozen() {
                    // Popped meanwhile: helps, and begins from the head.
                    link = self.before_at(level, block.key(), pin);
                    continue;
                }
                // SAFETY: found at this level after the pin.
                match unsafe { Self::alive(next.target(), pin) } {
                    Some(next) if next.key() < block.key() => {
                        link = &next.tower[level];
                        continue;
                    }
                    _ => {}
                }
                block.tower[level].set(Linked::to(next.target()));
                if link.exchange(next, Linked::to(block)) {
                    break;
                }
            }
        }
    }

    /// The link of `level` after which `key` belongs.
    fn before_at<'p>(&'p self, level: usize, key: u64, pin: &'p Pin) -> &'p Link<Block<T>> {
        'head: loop {
            let head = &self.heads[level];
            let mut link = head;
            loop {
                let next = link.load();
                // SAFETY: from the head, every block of the level was not retired before the pin.
                let Some(block) = (unsafe { Self::alive(next.target(), pin) }) else { return link };
                if block.key() >= key {
                    return link;
                }
                let beyond = block.tower[level].load();
                if beyond.is_frozen() {
                    // Being popped, with everything before it: help, then begin again. Not when
                    // others have done it meanwhile: what is first then has not been passed.
                    let first = head.load();
                    // SAFETY: as above.
                    let first = unsafe { Self::alive(first.target(), pin) };
                    if let Some(first) = first.filter(|first| first.key() <= block.key()) {
                        self.pop_front(level, first);
                    }
                    continue 'head;
                }
                link = &block.tower[level];
            }
        }
    }

    /// Takes the first block of a level out of it.
    fn pop_front(&self, level: usize, first: &Block<T>) {
        let next = loop {
            let next = first.tower[level].load();
            if weak(Control::UpperNotFrozen) || first.tower[level].freeze(next) {
                break next;
            }
        };
        self.heads[level].exchange(Linked::to(first), Linked::to(next.target()));
    }

    /// A block is passed, or its inserter has done: drops one reference, frees it with the last.
    fn leave(&self, block: &Block<T>, pin: &Pin) {
        if block.leave() {
            hit(Branch::LastReference);
            self.unlink(block, pin);
            self.bury(block, pin);
        }
    }

    /// Takes a passed block out of all shortcuts.
    fn unlink(&self, block: &Block<T>, pin: &Pin) {
        let own = Linked::to(block);
        for level in 0..block.tower.len() {
            loop {
                let first = self.heads[level].load().target();
                check(first);
                // SAFETY: shown by the level; the caller is pinned.
                let Some(first) = (unsafe { first.as_ref() }) else { break };
                if first.key() > block.key() {
                    break;
                }
                self.pop_front(level, first);
            }
        }
        self.table.clear(block.key(), own, pin);
        if let Some(chunk) = block.shown_chunk() {
            self.table.clear(block.key(), chunk, pin);
        }
        if self.last.load().target() == own.target() {
            self.last.exchange(own, Linked::to(ptr::null()));
        }
    }

    /// Retires a block that nothing shows any more, or keeps it while leases have slots of it.
    fn bury(&self, block: &Block<T>, pin: &Pin) {
        if block.doomed.load(Ordering::Acquire) > 0 && !weak(Control::OrphanFreed) {
            hit(Branch::Orphaned);
            self.adopt(block.own());
            if !weak(Control::OrphanForgotten) {
                self.trim(pin);
            }
        } else {
            // SAFETY: the last reference is gone, nothing shows it, and its messages are out.
            unsafe { pin.retire(block.own()) };
        }
    }

    fn adopt(&self, block: *const Block<T>) {
        let orphan = Box::into_raw(Box::new(Orphan { block, next: ptr::null_mut() }));
        loop {
            let first = self.orphans.load();
            // SAFETY: not shown to anybody yet.
            unsafe { (*orphan).next = first.target() };
            if self.orphans.exchange(first, Linked::to(orphan)) {
                return;
            }
        }
    }

    /// Frees the orphans whose last slot has been released.
    pub(crate) fn trim(&self, pin: &Pin) {
        let mut again = true;
        while again {
            again = false;
            let mut at = self.orphans.swap(Linked::to(ptr::null())).target();
            while !at.is_null() {
                // SAFETY: the swap made the whole list this call's; the node is retired once, and
                // not freed before: its address must not come back while somebody is in `adopt`.
                let orphan = unsafe {
                    pin.retire(at);
                    &*at
                };
                at = orphan.next;
                // SAFETY: an orphan is alive until it is retired here.
                let block = unsafe { &*orphan.block };
                if block.doomed.load(Ordering::Acquire) > 0 {
                    self.adopt(block.own());
                    // Released since it was looked at, by one that found no orphans: once more.
                    again |= block.doomed.load(Ordering::Acquire) == 0
                        && !weak(Control::OrphanForgotten);
                } else {
                    // SAFETY: as in `bury`; only one list has it.
                    unsafe { pin.retire(orphan.block.cast_mut()) };
                }
            }
        }
    }

    /// Shows every orphan, while no call is running.
    pub(crate) fn orphaned(&self, mut visit: impl FnMut(&Block<T>)) {
        let mut at = self.orphans.load().target();
        // SAFETY: no call is running, so nobody frees an orphan.
        while let Some(orphan) = unsafe { at.as_ref() } {
            // SAFETY: as above.
            visit(unsafe { &*orphan.block });
            at = orphan.next;
        }
    }

    /// Passes the front block, whose link holds `next`: freezes the gap between them, lets the
    /// caller raise the watermark, moves the front. Nothing when the link has changed.
    pub(crate) fn pass(
        &self,
        block: &Block<T>,
        next: Linked<Block<T>>,
        raise: impl FnOnce(),
        pin: &Pin,
    ) {
        if !block.next.freeze(next) {
            return;
        }
        let advance = || self.front.exchange(Linked::to(block), Linked::to(next.target()));
        // The watermark first: a call that reads it after its pin then knows which blocks have
        // left the list.
        let moved = if weak(Control::FrontBeforeWatermark) {
            let moved = advance();
            raise();
            moved
        } else {
            raise();
            advance()
        };
        if moved {
            self.table.left();
            self.leave(block, pin);
        }
    }

    /// With no call running: every shortcut shows a block of the list, each level has all that
    /// belong to it, and no orphan waits for nothing.
    #[cfg(loom)]
    pub(crate) fn check_shortcuts(&self, pin: &Pin) {
        let mut blocks = alloc::vec::Vec::new();
        let mut at = self.front(pin);
        while let Some(block) = at {
            blocks.push(Linked::to(block).target());
            at = self.after(block, pin);
        }
        let last = self.last.load().target();
        for shown in self.table.shown(pin) {
            assert!(blocks.contains(&shown), "an entry shows a passed block");
        }
        assert!(last.is_null() || blocks.contains(&last), "an entry shows a passed block");
        for (level, head) in self.heads.iter().enumerate() {
            let mut shown = alloc::vec::Vec::new();
            let mut link = head;
            // SAFETY: shown under the pin.
            while let Some(block) = unsafe { Self::alive(link.load().target(), pin) } {
                shown.push(Linked::to(block).target());
                link = &block.tower[level];
            }
            assert_eq!(shown, blocks, "a level does not show the blocks");
        }
        let orphan = self.orphans.load().target();
        // SAFETY: no call is running, so nobody frees it.
        if let Some(orphan) = unsafe { orphan.as_ref() } {
            // SAFETY: an orphan is alive.
            let doomed = unsafe { &*orphan.block }.doomed.load(Ordering::Acquire);
            assert!(doomed > 0, "an orphan waits for nothing");
        }
    }

    /// How many upper levels a block of this key has: one in four has the next.
    pub(crate) fn height(key: u64) -> usize {
        if cfg!(loom) {
            return LEVELS;
        }
        // Fibonacci hashing: the high bits are mixed.
        let mixed = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed.leading_zeros() / 2) as usize
    }
}

#[cfg(not(loom))]
const fn links<T, const L: usize>() -> [Link<Block<T>>; L] {
    [const { Link::new() }; L]
}

#[cfg(loom)]
fn links<T, const L: usize>() -> [Link<Block<T>>; L] {
    core::array::from_fn(|_| Link::new())
}

impl<T> Drop for List<T> {
    fn drop(&mut self) {
        let mut at = self.front.load().target();
        while !at.is_null() {
            // SAFETY: `&mut self`: no call is running, and each block is in level 0 once.
            let block = unsafe { Box::from_raw(at) };
            at = block.next.load().target();
        }
        let mut at = self.orphans.load().target();
        while !at.is_null() {
            // SAFETY: as above; orphans are not in level 0. Messages of forgotten leases are
            // dropped with their slots.
            let orphan = unsafe { Box::from_raw(at) };
            // SAFETY: as above.
            drop(unsafe { Box::from_raw(orphan.block.cast_mut()) });
            at = orphan.next;
        }
    }
}
