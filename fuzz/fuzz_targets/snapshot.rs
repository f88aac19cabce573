//! The decoder of snapshots: any bytes, and any bytes under a checksum that is right. It never
//! panics, what it reads is in order, and the filter and the iterator agree.
#![no_main]

use inflight::Snapshot;
use libfuzzer_sys::fuzz_target;

/// Version and checksum before a body, so that the form behind them is reached.
fn sealed(body: &[u8]) -> Vec<u8> {
    let mut crc = !0_u32;
    for byte in std::iter::once(&1).chain(body) {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    [&[1][..], &(!crc).to_le_bytes(), body].concat()
}

fn check(bytes: &[u8]) {
    let Ok(snapshot) = Snapshot::parse(bytes) else { return };
    let mut last = snapshot.watermark().get();
    let mut filter = snapshot.filter();
    assert!(snapshot.exact_up_to() >= last);
    for (index, range) in snapshot.finished().enumerate() {
        // The first may begin at the watermark, the others never touch the one before.
        assert!(range.start < range.end && range.end <= snapshot.exact_up_to());
        assert!(if index == 0 { range.start >= last } else { range.start > last });
        assert!(filter.is_finished(range.start) && filter.is_finished(range.end - 1));
        assert!(!filter.is_finished(range.end));
        last = range.end;
    }
    assert!(!snapshot.is_finished(snapshot.exact_up_to()));
}

fuzz_target!(|body: &[u8]| {
    check(body);
    check(&sealed(body));
});
