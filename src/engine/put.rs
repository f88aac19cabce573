//! Put: EMPTY -> FILLING -> (end, counters, generation) -> READY. Not for room: that is the space's.

use crate::control::{Branch, Control, hit, weak};
use crate::engine::meter::Paying;
use crate::engine::{CreditOf, Ended, Meter, Part, Space};
use crate::error::{BatchPut, BatchPutError, Put, PutError, PutErrorKind, Stale, Ticket};
use crate::flow::{CHUNK_BYTES, CHUNK_MESSAGES, MESSAGE_BYTES};
use crate::position::{Pos, distance, raise};
use crate::slot::{Chain, Place, Slot, Taken};
use crate::sync::{NARROW, Ordering, UNWINDS, Word};

impl<'a, S: Space + ?Sized> Part<'a, S> {
    /// Admits one message, paid for by this call.
    #[inline]
    pub(crate) fn put(
        self,
        offset: u64,
        bytes: usize,
        value: S::Value,
        pin: &S::Pin,
    ) -> Result<Put, PutError<S::Value>> {
        let mut paying = Paying::new(self.space.meter());
        self.put_paid(&mut paying.credit, offset, bytes, value, pin)
    }

    /// Admits one message, paid for from the credit first.
    #[inline]
    pub(crate) fn put_paid(
        self,
        credit: &mut CreditOf<S>,
        offset: u64,
        bytes: usize,
        value: S::Value,
        pin: &S::Pin,
    ) -> Result<Put, PutError<S::Value>> {
        let mut filled = Filled::new(self, credit, pin);
        match filled.enter(offset, bytes) {
            Ok((place, bytes)) => filled.push(place, offset, bytes, value),
            Err(kind) => return Err(PutError::new(kind, value)),
        }
        match filled.publish() {
            Ok(()) => match filled.given_up.take() {
                None => Ok(Put { dispatch: filled.done.dispatch, ticket: Ticket(filled.last) }),
                Some(value) => Err(PutError::BelowWatermark(value)),
            },
            Err((_, value)) => Err(PutError::Stale(value)),
        }
    }

    /// Admits what the iterator gives until one message is refused for good; paid for by this
    /// call.
    pub(crate) fn put_batch(
        self,
        messages: &mut dyn Iterator<Item = (u64, S::Value)>,
        size: &mut dyn FnMut(&S::Value) -> usize,
        pin: &S::Pin,
    ) -> Result<BatchPut, BatchPutError<S::Value>> {
        let mut paying = Paying::new(self.space.meter());
        self.put_batch_paid(&mut paying.credit, messages, size, pin)
    }

    /// The same, paid for from the credit first.
    pub(crate) fn put_batch_paid(
        self,
        credit: &mut CreditOf<S>,
        messages: &mut dyn Iterator<Item = (u64, S::Value)>,
        size: &mut dyn FnMut(&S::Value) -> usize,
        pin: &S::Pin,
    ) -> Result<BatchPut, BatchPutError<S::Value>> {
        // Declared first: published also when the iterator, the size or a drop panics.
        let mut filled = Filled::new(self, credit, pin);
        // User code runs here, between two messages, never while a slot has no message yet.
        for (offset, value) in messages {
            let bytes = size(&value);
            match filled.enter(offset, bytes) {
                Ok((place, bytes)) => filled.push(place, offset, bytes, value),
                Err(PutErrorKind::Duplicate) => filled.done.duplicates += 1,
                Err(PutErrorKind::Passed | PutErrorKind::BelowWatermark) => {
                    filled.done.passed += 1;
                }
                Err(error) => {
                    filled.flush()?;
                    return Err(BatchPutError { error, offset, value, so_far: filled.done });
                }
            }
            if filled.chain.len() == CHUNK_MESSAGES || filled.bytes >= CHUNK_BYTES {
                filled.flush()?;
            }
        }
        filled.flush()?;
        Ok(filled.done)
    }
}

/// Slots that this put is filling, published together: end, counters and signal once for all.
struct Filled<'a: 'p, 'p, 'c, S: Space + ?Sized> {
    part: Part<'a, S>,
    /// Pays for what is filled.
    credit: &'c mut CreditOf<S>,
    pin: &'p S::Pin,
    chain: Chain<S::Value>,
    bytes: u64,
    /// The lowest and the highest position in the chain.
    first: Pos,
    last: Pos,
    /// The offset filled last.
    offset: u64,
    /// Where the last message was stored.
    pushed: Option<Place<'p, S::Value>>,
    /// The watermark and the bound that were read before the first of the chain.
    view: (Pos, Pos),
    /// Numbered by arrival: no other put of this assignment runs meanwhile.
    turn: bool,
    /// The last message that turned out to lie below the floor.
    given_up: Option<S::Value>,
    /// What was published so far, also to make room in the middle of a batch.
    done: BatchPut,
}

impl<'a: 'p, 'p, 'c, S: Space + ?Sized> Filled<'a, 'p, 'c, S> {
    #[inline(always)]
    fn new(part: Part<'a, S>, credit: &'c mut CreditOf<S>, pin: &'p S::Pin) -> Self {
        Self {
            part,
            credit,
            pin,
            chain: Chain::new(),
            bytes: 0,
            first: 0,
            last: 0,
            offset: 0,
            pushed: None,
            view: (0, 0),
            turn: false,
            given_up: None,
            done: BatchPut::default(),
        }
    }

    /// Makes the slot of `offset` FILLING, or says why not.
    #[inline(always)]
    fn enter(
        &mut self,
        offset: u64,
        bytes: usize,
    ) -> Result<(Place<'p, S::Value>, u32), PutErrorKind> {
        let part = self.part;
        // A refusal is said only after another look at the generation: what was seen may belong
        // to a later one.
        let refuse = |kind| match part.open() {
            Ok(()) => kind,
            Err(Ended::Stale) => PutErrorKind::Stale,
            Err(Ended::Closed) => PutErrorKind::Closed,
        };
        // Read once for what is published together: an older watermark only makes the bound
        // lower. The generation is looked at after it in every case, and for each message.
        let looked = match self.chain.len() {
            0 => part.view().map(|view| self.view = view),
            _ => part.open(),
        };
        looked.map_err(|_| refuse(PutErrorKind::Stale))?;
        if offset < part.generation.base {
            return Err(refuse(PutErrorKind::BelowWatermark));
        }
        // `end` is exclusive, so the last offset of all has no end.
        let pos = match self.position(offset).map_err(refuse)? {
            Some(pos) if offset < u64::MAX && pos < u64::MAX => pos,
            _ => return Err(refuse(PutErrorKind::OutOfRange)),
        };
        if pos >= self.view.1 && self.chain.len() > 0 {
            self.view = part.view().map_err(|_| refuse(PutErrorKind::Stale))?;
        }
        let (watermark, bound) = self.view;
        let Some(ahead) = pos.checked_sub(watermark) else {
            return Err(refuse(PutErrorKind::BelowWatermark));
        };
        if ahead >= part.space.far() || bytes > MESSAGE_BYTES as usize {
            return Err(refuse(PutErrorKind::OutOfRange));
        }
        let bytes = bytes as u32;
        // Room for one is room for what is published together.
        if self.chain.len() == 0 && !part.words().flow.has_room(bytes) {
            return Err(refuse(PutErrorKind::Full));
        }
        if pos >= bound {
            self.make_room(pos).map_err(refuse)?;
        }
        if weak(Control::EndBeforeFilling) {
            raise(&part.words().end, pos + 1, watermark);
        }
        let beside = self.pushed.and_then(|last| part.space.beside(last, pos, self.pin));
        let place = beside.map_or_else(|| part.space.open(pos, self.pin), Ok);
        let place = place.map_err(|taken| refuse(self.refused(taken, pos)))?;
        let meter = part.space.meter();
        // Before the message is admitted; from then on whoever counts it out gives this back.
        if !meter.spend(self.credit, bytes) {
            // What is known already needs no room.
            return Err(refuse(match place.slot.state().accepts(place.lap) {
                Ok(()) => PutErrorKind::OverBudget,
                Err(taken) => self.refused(taken, pos),
            }));
        }
        if let Err(taken) = place.slot.fill(place.lap) {
            meter.unspend(self.credit, bytes);
            return Err(refuse(self.refused(taken, pos)));
        }
        Ok((place, bytes))
    }

    /// What a put is answered for a slot that does not take it.
    ///
    /// Finished, and at the end or beyond: a restored snapshot said so. Then the put says that it
    /// has come to here, as if it had been admitted and finished.
    #[cold]
    fn refused(&self, taken: Taken, pos: Pos) -> PutErrorKind {
        let words = self.part.words();
        if taken == Taken::Passed && distance(words.end(pos), pos) >= 0 && !self.part.numbered() {
            // Within reach, so by maximum as in `publish`.
            raise(&words.end, pos + 1, pos);
            words.flow.finish(0, 0);
            self.part.space.slide(self.pin);
            #[cfg(feature = "async")]
            self.part.wake_finished();
        }
        kind(taken)
    }

    /// Where `offset` goes.
    #[inline(always)]
    fn position(&mut self, offset: u64) -> Result<Option<Pos>, PutErrorKind> {
        if self.part.numbered() {
            return self.number(offset).map(Some);
        }
        Ok(self.part.dense_position(offset))
    }

    fn number(&mut self, offset: u64) -> Result<Pos, PutErrorKind> {
        if !self.turn {
            if !self.part.take_turn() {
                return Err(PutErrorKind::Full);
            }
            self.turn = true;
        }
        let filling = (self.chain.len() > 0).then_some(self.last);
        if filling.is_some() && offset <= self.offset {
            // Known, or out of order: asked about when what was filled is ready.
            if let Err((_, value)) = self.publish() {
                drop(value);
                return Err(PutErrorKind::Stale);
            }
            return self.part.number(offset, None, self.pin);
        }
        self.part.number(offset, filling, self.pin)
    }

    /// `pos` lies beyond what this call may touch: asks the space for room.
    ///
    /// The watermark within whose reach `pos` then is must be of this generation, or `pos` is a
    /// position of the next: so the generation is looked at again after it.
    #[cold]
    fn make_room(&mut self, pos: Pos) -> Result<(), PutErrorKind> {
        let part = self.part;
        if let Err((_, value)) = self.publish() {
            // The assignment ended; what was filled goes with it.
            drop(value);
            return Err(PutErrorKind::Stale);
        }
        part.space.make_room(pos, self.pin, |end| {
            // Exchanged from a value read before this look at the generation: an assign in
            // between has changed it, or will see this one and start beyond.
            part.current()?;
            let (to, order) = (pos as Word, Ordering::AcqRel);
            Ok(part.words().end.compare_exchange(end, to, order, Ordering::Acquire).is_ok())
        })?;
        self.view = part.view_closed().map_err(|Stale| PutErrorKind::Stale)?;
        Ok(())
    }

    /// Stores a message in a slot that [`Filled::enter`] gave.
    #[inline(always)]
    fn push(&mut self, place: Place<'p, S::Value>, offset: u64, bytes: u32, value: S::Value) {
        self.part.space.filled(place, self.pin);
        // SAFETY: `enter` made it FILLING, for this put alone, and `pin` keeps it alive.
        unsafe {
            place.slot.write(offset, bytes, value);
            self.chain.push(place.slot);
        }
        self.bytes += u64::from(bytes);
        let alone = self.chain.len() == 1;
        self.first = if alone { place.pos } else { self.first.min(place.pos) };
        self.last = if alone { place.pos } else { self.last.max(place.pos) };
        self.offset = offset;
        self.pushed = Some(place);
    }

    /// Makes the messages ready. When the assignment has ended they are taken back and dropped
    /// with the rest of it, but for the last, which is returned.
    #[inline]
    fn publish(&mut self) -> Result<(), (u64, S::Value)> {
        let (count, passed) = (self.chain.len(), self.done.passed);
        // SAFETY: the chain's slots are FILLING for this put alone, and `pin` keeps them alive.
        let Some(mut slot) = (unsafe { self.chain.pop() }) else { return Ok(()) };
        let part = self.part;
        let words = part.words();
        // Between FILLING and READY: earlier, an in-order put could be sealed away; later, its
        // finisher would not yet see the end that it must pass.
        // Only positions within reach are raised to by maximum: a later assignment's end lies
        // beyond them, and a racing one fails its exchange and starts higher.
        let end = if weak(Control::EndAfterReady) {
            self.last
        } else {
            raise(&words.end, self.last + 1, self.last)
        };
        words.flow.admit(count, self.bytes);
        self.bytes = 0;
        if part.current().is_err() && !weak(Control::NoSecondGeneration) {
            hit(Branch::PutStale);
            return Err(self.withdraw(slot));
        }
        if weak(Control::TailBeforeReady) && part.numbered() {
            self.raise_tail();
        }
        let mut late: Option<Pos> = None;
        let some_late = self.first < end;
        // Read after the meeting: a floor that does not see these slots is seen here.
        let floor = if weak(Control::FloorIgnored) { 0 } else { part.floor(self.first) };
        loop {
            let given_up = floor > self.first && part.space.position_of(slot) < floor;
            // SAFETY: FILLING for this put alone (or doomed since), and `pin` keeps it alive.
            if given_up || !unsafe { slot.publish(slot.state().lap()) } {
                if part.current().is_err() {
                    return Err(self.withdraw(slot));
                }
                let before = count - self.chain.len() - 1 > self.done.passed - passed;
                self.give_up(slot, before, late.take());
            } else if some_late {
                let pos = part.space.position_of(slot);
                if pos < end {
                    late = Some(late.map_or(pos, |lowest| lowest.min(pos)));
                }
            }
            // SAFETY: as above.
            match unsafe { self.chain.pop() } {
                Some(next) => slot = next,
                None => break,
            }
        }
        if weak(Control::EndAfterReady) {
            raise(&words.end, self.last + 1, self.last);
        }
        // Late: a taker may have passed these positions already.
        if let Some(lowest) = late.filter(|_| !weak(Control::LateKeepsCursor)) {
            hit(Branch::LatePut);
            part.lower_cursor(lowest);
        }
        if part.numbered() && !weak(Control::TailBeforeReady) {
            self.raise_tail();
        }
        let ready = count - (self.done.passed - passed);
        self.done.admitted += ready;
        // A put that fell as a whole has nothing to announce: the mark is the next one's.
        if ready > 0 || weak(Control::FallenAnnounced) {
            self.done.dispatch |= part.announce();
        }
        Ok(())
    }

    /// Publishes, in the middle of a batch or at its end.
    fn flush(&mut self) -> Result<(), BatchPutError<S::Value>> {
        self.publish().map_err(|(offset, value)| {
            let error = PutErrorKind::Stale;
            BatchPutError { error, offset, value, so_far: self.done }
        })
    }

    /// Numbered by arrival, and after the messages are ready: see `numbered`. (In a generation
    /// that has ended there is nothing to raise.)
    fn raise_tail(&self) {
        let tail = self.part.dense_position(self.offset).map_or(0, |at| at + 1);
        let _ = self.part.raise_tail(tail);
    }

    /// Takes back a slot below the floor. What was published `before` is announced first, since the
    /// drop of the message that was given up last may panic.
    #[cold]
    fn give_up(&mut self, slot: &Slot<S::Value>, before: bool, late: Option<Pos>) {
        hit(Branch::PutBelowFloor);
        if let Some(lowest) = late {
            self.part.lower_cursor(lowest);
        }
        if before || weak(Control::FallenAnnounced) {
            self.done.dispatch |= self.part.announce();
        }
        self.done.passed += 1;
        // SAFETY: FILLING for this put alone (or doomed since), and `pin` keeps it alive.
        let taking = unsafe { slot.unfill(slot.state().lap()) };
        self.part.settle(1, taking.bytes, self.pin);
        #[cfg(feature = "async")]
        self.part.wake_released();
        self.given_up = Some(taking.value);
    }

    /// Takes back `slot` and the rest of the chain: the assignment has ended. Returns the last.
    #[cold]
    fn withdraw(&mut self, mut slot: &Slot<S::Value>) -> (u64, S::Value) {
        loop {
            // SAFETY: FILLING for this put alone (or doomed since), and `pin` keeps it alive.
            let (lap, offset) = unsafe { (slot.state().lap(), slot.offset()) };
            // SAFETY: as above.
            let taking = unsafe { slot.unfill(lap) };
            self.part.settle(1, taking.bytes, self.pin);
            if weak(Control::BudgetPaidBackTwice) {
                self.part.space.meter().unspend(self.credit, taking.bytes);
            }
            #[cfg(feature = "async")]
            self.part.wake_released();
            // SAFETY: as above.
            match unsafe { self.chain.pop() } {
                Some(next) => slot = next,
                None => return (offset, taking.value),
            }
        }
    }
}

impl<'a: 'p, 'p, S: Space + ?Sized> Drop for Filled<'a, 'p, '_, S> {
    fn drop(&mut self) {
        // Not empty only when user code panicked: what was filled is published.
        while UNWINDS && self.chain.len() > 0 {
            drop(self.publish());
        }
        if self.turn && !NARROW {
            self.part.end_turn();
        }
    }
}

fn kind(taken: Taken) -> PutErrorKind {
    match taken {
        Taken::Duplicate => PutErrorKind::Duplicate,
        Taken::Passed => PutErrorKind::Passed,
        Taken::Busy => PutErrorKind::Full,
    }
}
