//! Who may go to another thread, or be shared between two: checked when this file is compiled.
//!
//! What must *not* compile is in `compile_fail.md`, run with the doc tests, positive twins beside
//! it. Here is the same by inference: `no_send` and `no_sync` are ambiguous, and so do not compile,
//! for a type that has the trait.

use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, MutexGuard};

use inflight::{
    Assignment, Detached, DetachedIn, Lease, RingWindow, SharedLease, SharedLeaseIn, Values,
};

const fn send<T: ?Sized + Send>() {}
const fn sync<T: ?Sized + Sync>() {}

/// Implemented once for every type, and once more for those that have the trait: then the call
/// is ambiguous and does not compile.
trait Unless<Marker> {
    fn holds() {}
}
struct HasSend;
struct HasSync;
struct Always;
struct Send_<T: ?Sized>(PhantomData<T>);
struct Sync_<T: ?Sized>(PhantomData<T>);
impl<T: ?Sized> Unless<Always> for Send_<T> {}
impl<T: ?Sized + Send> Unless<HasSend> for Send_<T> {}
impl<T: ?Sized> Unless<Always> for Sync_<T> {}
impl<T: ?Sized + Sync> Unless<HasSync> for Sync_<T> {}

macro_rules! no_send {
    ($($type:ty),+ $(,)?) => { $(<Send_<$type> as Unless<_>>::holds();)+ };
}
macro_rules! no_sync {
    ($($type:ty),+ $(,)?) => { $(<Sync_<$type> as Unless<_>>::holds();)+ };
}

/// Send and Sync.
type Both = u64;
/// Send, not Sync.
type OnlySend = Cell<u64>;
/// Sync, not Send.
type OnlySync = MutexGuard<'static, u64>;
/// Neither.
type Neither = Rc<u64>;

type Window<T> = RingWindow<T, 8>;
type Borrowed<T> = &'static Window<T>;
type Owned<T> = Arc<Window<T>>;

#[test]
fn the_window_is_both_when_the_message_is_send() {
    send::<Window<Both>>();
    sync::<Window<Both>>();
    send::<Window<OnlySend>>();
    sync::<Window<OnlySend>>();
    no_send!(Window<OnlySync>, Window<Neither>);
    no_sync!(Window<OnlySync>, Window<Neither>);
}

#[test]
fn the_assignment_goes_where_its_window_goes() {
    send::<Assignment<Borrowed<Both>>>();
    sync::<Assignment<Borrowed<Both>>>();
    send::<Assignment<Owned<Both>>>();
    sync::<Assignment<Owned<OnlySend>>>();
    no_send!(Assignment<Borrowed<OnlySync>>, Assignment<Owned<Neither>>);
    no_sync!(Assignment<Borrowed<OnlySync>>, Assignment<Owned<Neither>>);
}

#[test]
fn a_lending_lease_is_send_and_sync_as_its_message() {
    send::<Lease<Borrowed<Both>>>();
    sync::<Lease<Borrowed<Both>>>();
    send::<Lease<Owned<Both>>>();
    sync::<Lease<Owned<Both>>>();
    send::<Values<Borrowed<Both>>>();
    // It goes to another thread with its messages; two threads must not look at one.
    send::<Lease<Borrowed<OnlySend>>>();
    send::<Lease<Owned<OnlySend>>>();
    no_sync!(Lease<Borrowed<OnlySend>>, Lease<Owned<OnlySend>>);
    no_send!(Lease<Borrowed<OnlySync>>, Lease<Owned<OnlySync>>, Lease<Borrowed<Neither>>);
    no_sync!(Lease<Borrowed<Neither>>, Lease<Owned<Neither>>);
}

#[test]
fn a_shared_lease_is_as_its_clones() {
    send::<SharedLease<Borrowed<Both>>>();
    sync::<SharedLease<Borrowed<Both>>>();
    send::<SharedLease<Owned<Both>>>();
    send::<SharedLeaseIn<Borrowed<Both>, 4>>();
    sync::<SharedLeaseIn<Borrowed<Both>, 4>>();
    send::<SharedLease<Owned<OnlySend>>>();
    no_sync!(SharedLease<Owned<OnlySend>>, SharedLeaseIn<Borrowed<OnlySend>, 4>);
    no_send!(SharedLease<Owned<Neither>>, SharedLeaseIn<Borrowed<Neither>, 4>);
    no_sync!(SharedLease<Owned<Neither>>, SharedLeaseIn<Borrowed<Neither>, 4>);
}

#[test]
fn a_receipt_goes_where_its_window_goes() {
    send::<Detached<Borrowed<Both>>>();
    sync::<Detached<Borrowed<Both>>>();
    send::<DetachedIn<Borrowed<Both>, 4>>();
    sync::<DetachedIn<Borrowed<Both>, 4>>();
    // It has no clone, and shows no message.
    send::<Detached<Owned<OnlySend>>>();
    sync::<Detached<Owned<OnlySend>>>();
    sync::<DetachedIn<Owned<OnlySend>, 4>>();
    no_send!(Detached<Owned<OnlySync>>, Detached<Owned<Neither>>, DetachedIn<Borrowed<Neither>, 4>);
    no_sync!(Detached<Owned<OnlySync>>, Detached<Owned<Neither>>, DetachedIn<Borrowed<Neither>, 4>);
}

#[test]
fn an_owned_lease_goes_into_a_thread_and_keeps_the_window() {
    use inflight::Window as _;
    let window = Arc::new(Window::<String>::new());
    let part = window.assign_owned(0);
    drop(window);
    part.put(0, "kept".to_owned()).unwrap();
    let lease = part.take(1).unwrap();
    drop(part);
    let next = std::thread::spawn(move || {
        assert_eq!(lease.iter().next().unwrap().1, "kept");
        lease.commit().unwrap().next.get()
    });
    assert_eq!(next.join().unwrap(), 1);
}
