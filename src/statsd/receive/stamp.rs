//! When something reached this host, as the kernel says it beside what is read.

use std::time::{SystemTime, UNIX_EPOCH};

/// Words of control data for each read: room for a time (4 words) and a 32-bit counter (3).
pub(super) const CONTROL_WORDS: usize = 8;
/// Words before the data of a control message: its length, level and type.
const CONTROL_HEAD: usize = 2;

/// When something reached this host: nanoseconds of its wall clock, as the kernel notes it for each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// Later than everything.
    pub(crate) const MAX: Self = Self(u64::MAX);
    /// Earlier than everything.
    pub(crate) const MIN: Self = Self(0);

    /// The present time, by the clock that stamps packets.
    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    #[cfg(test)]
    pub(crate) const fn at(nanos: u64) -> Self {
        Self(nanos)
    }
}

/// The time in the control data of a read, which are so many bytes.
pub(super) fn control_stamp(words: &[u64], length: usize) -> Option<Stamp> {
    control_messages(words, length).find(|(option, _)| *option == libc::SCM_TIMESTAMPNS).and_then(
        |(_, data)| match data {
            [seconds, nanos, ..] => {
                Some(Stamp(seconds.checked_mul(1_000_000_000)?.checked_add(*nanos)?))
            }
            _ => None,
        },
    )
}

/// Control messages of the socket level: type and data. Each is a `cmsghdr` (length, level, type), then the data, up to
/// a full word. `length` is in bytes.
pub(super) fn control_messages(
    words: &[u64],
    length: usize,
) -> impl Iterator<Item = (i32, &[u64])> {
    let mut rest = words.get(..(length / size_of::<u64>()).min(words.len())).unwrap_or_default();
    std::iter::from_fn(move || {
        let [size, kind, ..] = *rest else { return None };
        let end = (size as usize).div_ceil(size_of::<u64>());
        let data = rest.get(CONTROL_HEAD..end)?;
        rest = rest.get(end..)?;
        Some(([kind as u32 as i32, (kind >> 32) as u32 as i32], data))
    })
    .filter(|([level, _], _)| *level == libc::SOL_SOCKET)
    .map(|([_, option], data)| (option, data))
}
