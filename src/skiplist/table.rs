//! The table of blocks by key: the shortcut that most calls take. It grows with the number of
//! blocks, and is never the truth: an entry may be missing, or another block's.
//!
//! An entry shows a block, or the chunk that has all slots of one, which leads to the block.
//!
//! # Growth
//!
//! A table twice as large takes the place of one that has fewer entries than the list has blocks.
//! It begins empty, so that no call pays for all blocks at once; the table before it stays
//! reachable as the *older* one, and what is found there is brought over. The one before that is
//! retired. One call grows it at a time, and if that call is stopped, or there is no memory, the
//! table stays as small as it is.
//!
//! # What a table shows was not retired before the caller's pin
//!
//! An entry is written only by a party that has a reference to its block. The last to leave a
//! block has seen all of those do so (the count of references is one word, and each leaves it by
//! a read-modify-write): so it sees the table that they wrote to, or later ones, and clears the
//! block's entry in the current and the older table before it retires the block. A call that pins
//! after that sees those two, or later ones, which the block was never written to.
//!
//! Chunks have references of their own, for the same reason: one may be given back and retired while
//! its block goes on. Whoever shows or gives back a chunk has one to the block as well, so that
//! what a chunk leads to was not retired before the table has forgotten the chunk.
//!
//! For that, `older` changes before `current`, and `clear` reads them the other way round: a table
//! that stops being current in between is then met as the older one.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::ptr;

use crate::control::{Branch, Control, hit, weak};
use crate::skiplist::block::{Block, Link, Linked};
use crate::skiplist::reclaim::{Pin, check};
use crate::sync::{AtomicPtr, AtomicWord, Ordering, Word, const_unless_loom};

/// Entries of a line.
const LINE: usize = if cfg!(loom) { 2 } else { 8 };
/// Lines of the first table, as a power of two.
const FIRST: usize = if cfg!(loom) { 0 } else { 3 };
/// Lines of the largest table, as a power of two.
const MOST: usize = if usize::BITS > 32 { 40 } else { 20 };

pub(crate) struct Table<T> {
    current: AtomicPtr<Line<T>>,
    older: AtomicPtr<Line<T>>,
    /// Blocks in the list. Relaxed: how large the table is matters to nothing but speed.
    blocks: AtomicWord,
    /// Somebody is growing it.
    growing: AtomicWord,
}

/// A cache line of entries. Aligned, so that a pointer to the first has room for the number of
/// lines.
#[repr(align(64))]
struct Line<T>([Link<Block<T>>; LINE]);

impl<T> Line<T> {
    /// The bits of a pointer that say how many lines follow, as a power of two.
    const BITS: usize = 63;

    fn new() -> Self {
        Self(core::array::from_fn(|_| Link::new()))
    }
}

/// One size of the table, or none yet.
struct Entries<'p, T> {
    word: *mut Line<T>,
    alive: PhantomData<&'p Line<T>>,
}

impl<T> Clone for Entries<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Entries<'_, T> {}

impl<'p, T> Entries<'p, T> {
    fn make(power: usize) -> Option<*mut Line<T>> {
        let lines = 1 << power;
        let mut all: Vec<Line<T>> = Vec::new();
        all.try_reserve_exact(lines).ok()?;
        all.extend((0..lines).map(|_| Line::new()));
        let first = Box::into_raw(all.into_boxed_slice()).cast::<Line<T>>();
        Some(first.map_addr(|address| address | power))
    }

    #[inline(always)]
    fn load(from: &AtomicPtr<Line<T>>, _: &'p Pin) -> Self {
        // Acquire: its entries were made before it was shown.
        Self { word: from.load(Ordering::Acquire), alive: PhantomData }
    }

    #[inline(always)]
    fn power(self) -> usize {
        self.word.addr() & Line::<T>::BITS
    }

    #[inline(always)]
    fn first(self) -> *mut Line<T> {
        self.word.map_addr(|address| address & !Line::<T>::BITS)
    }

    fn len(self) -> usize {
        if self.word.is_null() { 0 } else { LINE << self.power() }
    }

    /// The pointer to free it by.
    fn whole(self) -> *mut [Line<T>] {
        ptr::slice_from_raw_parts_mut(self.first(), 1 << self.power())
    }

    /// The entry of a key. Neighbours have neighbouring entries, and what is regularly far apart
    /// is folded into the gaps.
    #[inline(always)]
    fn entry(self, key: u64) -> Option<&'p Link<Block<T>>> {
        if self.word.is_null() {
            return None;
        }
        check(self.first());
        let index = (key ^ key >> 6) as usize & ((LINE << self.power()) - 1);
        // SAFETY: not retired before the pin, and the line's index is below their number.
        let line = unsafe { &*self.first().add(index / LINE) };
        line.0.get(index % LINE)
    }
}

impl<T> Table<T> {
    const_unless_loom! {
        pub(crate) const fn new() -> Self {
            Self {
                current: AtomicPtr::new(ptr::null_mut()),
                older: AtomicPtr::new(ptr::null_mut()),
                blocks: AtomicWord::new(0),
                growing: AtomicWord::new(0),
            }
        }
    }

    /// What the entry of `key` shows: a block, or the chunk of one.
    #[inline(always)]
    pub(crate) fn get(&self, key: u64, pin: &Pin) -> Linked<Block<T>> {
        let entry = Entries::load(&self.current, pin).entry(key);
        entry.map_or(Linked::to(ptr::null()), Link::load)
    }

    /// What the entry of `key` showed before the table grew.
    pub(crate) fn get_older(&self, key: u64, pin: &Pin) -> Linked<Block<T>> {
        let entry = Entries::load(&self.older, pin).entry(key);
        entry.map_or(Linked::to(ptr::null()), Link::load)
    }

    /// Shows the block of `key`, or its chunk; the caller has a reference to it, and if it is the
    /// chunk, to both.
    pub(crate) fn set(&self, key: u64, to: Linked<Block<T>>, pin: &Pin) {
        if let Some(entry) = Entries::load(&self.current, pin).entry(key) {
            entry.set(to);
        }
    }

    /// Takes out what is its last party's: the block of `key`, or its chunk.
    pub(crate) fn clear(&self, key: u64, own: Linked<Block<T>>, pin: &Pin) {
        for (of, is_older) in [(&self.current, false), (&self.older, true)] {
            if is_older && weak(Control::OlderNotCleared) {
                continue;
            }
            let entry = Entries::load(of, pin).entry(key);
            if let Some(entry) = entry.filter(|entry| entry.load().is(own)) {
                entry.exchange(own, Linked::to(ptr::null()));
            }
        }
    }

    /// A block has come into the list.
    pub(crate) fn came(&self, pin: &Pin) {
        let blocks = self.blocks.fetch_add(1, Ordering::Relaxed) + 1;
        let current = Entries::load(&self.current, pin);
        if blocks as usize > current.len() && current.power() < MOST {
            self.grow(pin);
        }
    }

    /// A block has left the list.
    pub(crate) fn left(&self) {
        self.blocks.fetch_add(Word::MAX, Ordering::Relaxed);
    }

    #[cold]
    fn grow(&self, pin: &Pin) {
        // Acquire: what the one before has stored is seen.
        if self.growing.swap(1, Ordering::AcqRel) != 0 {
            return;
        }
        let current = Entries::load(&self.current, pin);
        let power = if current.word.is_null() { FIRST } else { current.power() + 1 };
        if let Some(larger) = Entries::make(power) {
            let before = Entries::load(&self.older, pin);
            if weak(Control::OlderAfterCurrent) {
                self.current.store(larger, Ordering::Release);
                self.older.store(current.word, Ordering::Release);
            } else {
                self.older.store(current.word, Ordering::Release);
                self.current.store(larger, Ordering::Release);
            }
            let gone = if weak(Control::OlderRetired) { current } else { before };
            if !gone.word.is_null() {
                hit(Branch::TableRetired);
                // SAFETY: no new pin can reach it; it is retired once, by whoever replaced it,
                // and its entries own nothing.
                unsafe { pin.retire(gone.whole()) };
            }
        }
        self.growing.store(0, Ordering::Release);
    }

    /// Every block that is shown, with no call running.
    #[cfg(loom)]
    pub(crate) fn shown(&self, pin: &Pin) -> Vec<*mut Block<T>> {
        let tables = [&self.current, &self.older].map(|of| Entries::load(of, pin));
        let entries = tables.iter().filter(|table| !table.word.is_null()).flat_map(|table| {
            // SAFETY: alive under the pin.
            unsafe { &*table.whole() }.iter().flat_map(|line| &line.0)
        });
        let blocks = entries.filter_map(|entry| {
            // SAFETY: read under the pin.
            unsafe { entry.load().shown() }
        });
        blocks.map(|block| block.own()).collect()
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        for of in [&self.current, &self.older] {
            let entries = Entries { word: of.load(Ordering::Relaxed), alive: PhantomData };
            if !entries.word.is_null() {
                // SAFETY: `&mut self`: nobody else has it, and it was not retired.
                drop(unsafe { Box::from_raw(entries.whole()) });
            }
        }
    }
}
