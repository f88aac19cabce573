//! The windows of this crate as contestants.

use inflight::{Assignment, Lease, RingWindow, SharedLease, SkipWindow, Window};

use super::{Body, Contestant, Messages};

/// A window and its assignment.
pub struct Windowed<W: Window + 'static> {
    part: Assignment<&'static W>,
    window: *mut W,
}

// SAFETY: the pointer is only used to free the window, by whoever drops this.
unsafe impl<W: Window + Sync> Sync for Windowed<W> {}

impl<W: Window> Windowed<W> {
    fn new(window: Box<W>) -> Self {
        let window = Box::into_raw(window);
        // SAFETY: freed only when this is dropped, after which nobody has the assignment.
        let part = unsafe { &*window }.assign(0);
        Self { part, window }
    }
}

impl<W: Window> Drop for Windowed<W> {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and the leases of it borrow this.
        drop(unsafe { Box::from_raw(self.window) });
    }
}

/// A ring of `N` slots.
pub fn ring<const N: usize>() -> Windowed<RingWindow<Body, N>> {
    Windowed::new(RingWindow::boxed())
}

/// A ring of `N` slots that numbers messages by arrival.
pub fn ring_numbered<const N: usize>() -> Windowed<RingWindow<Body, N>> {
    Windowed::new(RingWindow::boxed_numbered())
}

/// A skip window.
pub fn skip() -> Windowed<SkipWindow<Body>> {
    Windowed::new(Box::default())
}

impl<W: Window<Value = Body>> Contestant for Windowed<W> {
    type Lease<'a> = Lease<&'static W>;

    #[inline]
    fn put(&self, offsets: &[u64], messages: &mut Messages) {
        let mut batch = offsets.iter().map(|&offset| (offset, messages.next()));
        let put = self.part.put_batch_sized(&mut batch, |body| body.len());
        assert_eq!(put.expect("there is room").admitted, offsets.len());
    }

    #[inline]
    fn remove(&self, offset: u64) -> u64 {
        self.part.remove(offset).expect("it is there").get()
    }

    #[inline]
    fn remove_batch(&self, offsets: &[u64]) -> u64 {
        let removed = self.part.remove_batch(offsets.iter().copied()).expect("in force");
        assert_eq!(removed.applied, offsets.len());
        removed.next.get()
    }

    #[inline]
    fn take(&self, n: usize) -> Option<Self::Lease<'_>> {
        self.part.take(n).ok()
    }

    #[inline]
    fn look(lease: &Self::Lease<'_>) -> (usize, u64) {
        (lease.len(), lease.iter().map(|(offset, body)| offset + u64::from(body[0])).sum())
    }

    #[inline]
    fn commit(&self, lease: Self::Lease<'_>) -> u64 {
        lease.commit().expect("in force").next.get()
    }

    fn count(&self) -> usize {
        self.part.window().count()
    }

    fn bytes(&self) -> u64 {
        self.part.window().bytes()
    }

    fn span(&self) -> u64 {
        self.part.window().span()
    }

    #[inline]
    fn watermark(&self) -> u64 {
        self.part.watermark().expect("in force").get()
    }
}

/// A window whose takes give clones: leases that can be revoked.
pub struct Shared<W: Window + 'static>(pub Windowed<W>);

impl<W: Window<Value = Body>> Contestant for Shared<W> {
    type Lease<'a> = SharedLease<&'static W>;

    fn put(&self, offsets: &[u64], messages: &mut Messages) {
        self.0.put(offsets, messages);
    }

    fn remove(&self, offset: u64) -> u64 {
        self.0.remove(offset)
    }

    fn remove_batch(&self, offsets: &[u64]) -> u64 {
        self.0.remove_batch(offsets)
    }

    #[inline]
    fn take(&self, n: usize) -> Option<Self::Lease<'_>> {
        self.0.part.take_shared(n).ok()
    }

    #[inline]
    fn look(lease: &Self::Lease<'_>) -> (usize, u64) {
        (lease.len(), lease.iter().map(|(offset, body)| offset + u64::from(body[0])).sum())
    }

    #[inline]
    fn commit(&self, lease: Self::Lease<'_>) -> u64 {
        lease.commit().expect("in force").next.get()
    }

    fn count(&self) -> usize {
        self.0.count()
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn span(&self) -> u64 {
        self.0.span()
    }

    fn watermark(&self) -> u64 {
        self.0.watermark()
    }
}
