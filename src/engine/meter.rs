//! What a window pays with for the messages in it: nothing, or its share of a budget.

use crate::error::ReserveError;
use crate::flow::Usage;
#[cfg(feature = "async")]
use crate::waiting::Waiters;

/// Pays for messages. The calls of a window without a budget pay by `()`, which is no code.
///
/// Each message is paid for once, before it is admitted, and given back once, when it is counted
/// out: so whatever the window holds is paid for at every moment.
#[doc(hidden)]
pub trait Meter {
    /// Paid already, for messages that are not admitted yet.
    type Credit: Copy + Default;

    /// Takes one message of so many bytes from the credit, and what is missing there from the
    /// budget. False when there is not enough: then nothing has changed.
    fn spend(&self, credit: &mut Self::Credit, bytes: u32) -> bool;

    /// The message was not admitted after all: it is in the credit again.
    fn unspend(&self, credit: &mut Self::Credit, bytes: u32);

    /// Messages have left the window.
    fn finished(&self, count: usize, bytes: u64);

    /// Pays ahead: as much of `most` as there is, at least `least`.
    fn reserve(&self, least: Usage, most: Usage) -> Result<Self::Credit, ReserveError>;

    /// Gives back credit that was not spent.
    fn refund(&self, credit: Self::Credit);

    /// What is left of a credit.
    fn left(credit: &Self::Credit) -> Usage;

    /// What could be reserved now.
    #[cfg_attr(not(feature = "std"), allow(dead_code))] // the consumer's
    fn room(&self) -> Usage;

    /// What can be reserved at most, when nothing else is in flight.
    #[cfg_attr(not(feature = "std"), allow(dead_code))] // the consumer's
    fn most(&self) -> Usage;

    /// Where it is waited for room.
    #[cfg(feature = "async")]
    fn waiters(&self) -> Option<&Waiters>;

    /// Who waits meets those who give back: they see the seat armed, or this what they gave.
    #[cfg(feature = "async")]
    fn meet(&self);
}

/// No budget.
impl Meter for () {
    type Credit = ();

    #[inline(always)]
    fn spend(&self, (): &mut (), _: u32) -> bool {
        true
    }

    #[inline(always)]
    fn unspend(&self, (): &mut (), _: u32) {}

    #[inline(always)]
    fn finished(&self, _: usize, _: u64) {}

    fn reserve(&self, _: Usage, _: Usage) -> Result<(), ReserveError> {
        Ok(())
    }

    #[inline(always)]
    fn refund(&self, (): ()) {}

    fn left((): &()) -> Usage {
        Usage::ENDLESS
    }

    fn room(&self) -> Usage {
        Usage::ENDLESS
    }

    fn most(&self) -> Usage {
        Usage::ENDLESS
    }

    #[cfg(feature = "async")]
    #[inline(always)]
    fn waiters(&self) -> Option<&Waiters> {
        None
    }

    #[cfg(feature = "async")]
    fn meet(&self) {}
}

/// The credit of one call, given back at its end.
pub(crate) struct Paying<'a, M: Meter> {
    meter: &'a M,
    pub(crate) credit: M::Credit,
}

impl<'a, M: Meter> Paying<'a, M> {
    #[inline(always)]
    pub(crate) fn new(meter: &'a M) -> Self {
        Self { meter, credit: M::Credit::default() }
    }
}

impl<M: Meter> Drop for Paying<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        self.meter.refund(self.credit);
    }
}
