//! The log's start moved above us: what lies below the floor is dropped, whatever it is doing.
//!
//! As an assignment ends what was before it, but within one: the end (and the caller's seal) rise
//! to the floor first, guarded by the generation; then the puts under way are met, which look at
//! the floor before they publish; then every slot below is finished, sealed or doomed; and only
//! then the watermark goes there.

use crate::control::{Branch, hit};
use crate::engine::assign::sweep_out;
use crate::engine::{Part, Space};
use crate::error::{AdvanceError, Floor, Stale};
use crate::position::{Pos, raise};

impl<'a, S: Space + ?Sized> Part<'a, S> {
    /// Drops everything below `low`.
    pub(crate) fn advance_floor(
        self,
        low: u64,
        pin: &S::Pin,
        dropped: &mut dyn FnMut(u64, S::Value),
    ) -> Result<Floor, AdvanceError> {
        let stale = |Stale| AdvanceError::Stale;
        let words = self.words();
        // Numbered by arrival: the message of `low` may be on its way.
        let _turn = if self.numbered() { Some(self.turn()?) } else { None };
        let to = if self.numbered() {
            self.raise_tail_to(low)?;
            self.numbered_floor(low, pin).map_err(stale)?
        } else {
            self.raise_end(low)?
        };
        // Below every later assignment's first position, like the end: a late raise of an old
        // assignment dooms nothing of a new one.
        raise(&words.generation.floor, to, to);
        words.flow.meet_admitted();
        let (mut count, mut lent) = (0, 0);
        sweep_out(
            self.space,
            to,
            pin,
            &mut |offset, value| {
                count += 1;
                dropped(offset, value);
            },
            &mut || lent += 1,
        );
        if lent > 0 {
            hit(Branch::FloorDoomed);
        }
        let next = self.next(self.space.slide(pin), pin).map_err(stale)?;
        Ok(Floor { next, dropped: count, lent })
    }

    /// The floor, near a position.
    #[inline(always)]
    pub(super) fn floor(self, near: Pos) -> Pos {
        self.words().floor(near)
    }
}
