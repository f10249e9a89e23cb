//! Faults, their durations, and the time after which scrapes must be current again.

use std::sync::LazyLock;
use std::time::Duration;

use fastrand::Rng;

use super::cluster::{ALL_KINDS, Kind};
use crate::tests::time_bound;

/// The time after the end of a fault within which scrapes may be stale.
pub static RECOVERY: LazyLock<Duration> = LazyLock::new(|| time_bound("recovery after a fault"));
/// The time within which scrapes may be stale after a peer has fallen silent.
pub(super) static SILENCE: LazyLock<Duration> =
    LazyLock::new(|| time_bound("recovery from a silent peer"));
/// The same for a silent watch whose connection works.
static STREAM_SILENCE: LazyLock<Duration> =
    LazyLock::new(|| time_bound("recovery from a silent watch on a connection that works"));
/// The time within which scrapes may be stale after a list has stopped half-way.
static LIST_SILENCE: LazyLock<Duration> =
    LazyLock::new(|| time_bound("a list that stops half-way is repeated"));

/// A fault of the server or the network.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// All connections are reset.
    Reset,
    /// All connections are closed.
    Closed,
    /// HTTP/2 connections get a GOAWAY, idle HTTP/1.1 connections are closed.
    GoAway,
    /// All watches are reset; their connections stay open.
    WatchesBroken,
    /// All watches end early.
    WatchesEnded,
    /// Old versions are compacted, and open watches get a 410.
    Compacted,
    /// Open watches get a 410 from a server whose cache is young, although versions are not compacted.
    WatchesExpired,
    /// Versions that are older than the last bookmarks are compacted, and all connections are reset.
    OldCompacted,
    /// Connections fall silent forever. With `new_too`, new ones do so as well until the end of the fault.
    Frozen { new_too: bool },
    /// Connections, including new ones, fall silent and continue at the end of the fault.
    Suspended,
    /// Open watches get no more events, although their connections work.
    WatchesSilent,
    /// The server behind open connections is gone: PINGs are answered, requests get no response and watches no events.
    BackendGone,
    /// Requests get no response and watches no events until the end of the fault.
    Stalled,
    /// The server is down until the end of the fault. With `forgets`, old versions are compacted.
    Restarted { forgets: bool },
    /// The server is down and then restored from a backup with an older version. Connection attempts in the meantime
    /// are refused, or with `held` delayed until the server is back.
    Restored { held: bool },
    /// Connection attempts are refused.
    Refused,
    /// The server's name does not resolve.
    DnsFailure,
    /// Connection attempts get no response.
    ConnectTimeout,
    /// This share of the requests gets an error.
    Status { code: u16, retry_after: Option<u64>, share: f64 },
    /// Each request is refused with another `Retry-After`, up to this number of seconds, as by an overloaded server that spreads the
    /// requests that come again.
    Overloaded { longest: u64 },
    /// The token is invalid, and replaced at the end of the fault. Some of these faults begin with another one that is invalid.
    TokenReplaced,
    /// The token is replaced at once, so that requests on their way have the former one.
    TokenRotated,
    /// The exec plugin fails, or with `hangs` does not end before the fault.
    PluginFails { hangs: bool },
    /// A kind is forbidden.
    Denied(Kind),
    /// The server does not have a kind.
    Absent(Kind),
    /// Responses have status 200 but an unrelated body.
    NotAList(usize),
    /// Bodies are truncated, with a regular end or (not `clean`) an error.
    Truncated { clean: bool },
    /// Lists stop half-way, although their connections work.
    ListsHang,
    /// Bodies end in garbage.
    Garbage,
    /// Bodies are compressed without having been requested so.
    Gzip,
    /// Connections transfer one byte per second.
    Slow,
    /// Responses are delayed by this time.
    Delayed(Duration),
    /// Lists arrive piece by piece, within about this time.
    SlowLists(Duration),
    /// New connections over TLS use HTTP/1.1, as through a proxy that is older than HTTP/2.
    OldProtocol,
    /// Requests with a continue token get a 410.
    PagesExpired,
    /// The server does not support streaming lists.
    NoStreaming,
    /// The server does not support protobuf.
    NoProtobuf,
    /// The server supports neither metadata nor tables. With `refuses` it responds with 406, otherwise with complete
    /// objects.
    NoRepresentations { refuses: bool },
    /// Watches open and then fail.
    Flapping(Flap),
    /// Watches get this error, with `streaming` also streaming lists. Paged lists work, as without the permission to watch.
    WatchesRefused { code: u16, streaming: bool },
}

/// A failure mode of watches after they have opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Flap {
    /// The code of the error event; 0 for a reset without one.
    pub code: u16,
    /// The time from the response headers to the failure.
    pub after: Duration,
    /// The delay of the first page of a list.
    pub list: Duration,
    /// Limits the flapping to [`FLAPPING`] and forbids all other kinds.
    pub others_forbidden: bool,
}

/// The kinds that flap while all others are forbidden.
pub const FLAPPING: [Kind; 3] = [Kind::ConfigMap, Kind::Node, Kind::Pod];

impl Flap {
    /// Returns true if watches of this kind fail.
    pub fn breaks(&self, kind: Kind) -> bool {
        !self.others_forbidden || FLAPPING.contains(&kind)
    }
}

impl Fault {
    /// Returns the name in the table of results.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Reset => "connections broken (RST)",
            Self::Closed => "connections closed (FIN)",
            Self::GoAway => "GOAWAY",
            Self::WatchesBroken => "watches broken (RST_STREAM)",
            Self::WatchesEnded => "watches ended early",
            Self::Compacted => "compaction: 410 on watches and pages",
            Self::WatchesExpired => "410 on watches",
            Self::OldCompacted => "connections broken, old versions compacted",
            Self::ListsHang => "lists stop half-way",
            Self::Frozen { new_too: false } => "connections silent for good",
            Self::Frozen { new_too: true } => "connections silent for good, new ones for a while",
            Self::Suspended => "connections silent, then alive again",
            Self::WatchesSilent => "watches silent, connection alive",
            Self::BackendGone => "connections answer PINGs only",
            Self::Stalled => "server hangs, connection alive",
            Self::Restarted { .. } => "API server restarted",
            Self::Restored { held: false } => "restored: versions go back",
            Self::Restored { held: true } => "restored, connections held meanwhile",
            Self::Refused => "connection refused",
            Self::DnsFailure => "name does not resolve",
            Self::ConnectTimeout => "no answer to connecting",
            Self::Status { code: 429, .. } => "429 with and without Retry-After",
            Self::Status { code: 401, .. } => "401 for requests",
            Self::Status { code: 403 | 404, .. } => "403 or 404 for everything",
            Self::Status { code: 410, .. } => "410 for everything",
            Self::Status { .. } => "500, 503, 504",
            Self::Overloaded { .. } => "429 with another Retry-After each time",
            Self::TokenReplaced => "token replaced late",
            Self::TokenRotated => "token replaced",
            Self::PluginFails { .. } => "exec plugin fails",
            Self::Denied(_) => "one kind forbidden",
            Self::Absent(_) => "one kind missing",
            Self::NotAList(_) => "200 that is no list",
            Self::Truncated { .. } => "bodies truncated",
            Self::Garbage => "garbage in bodies",
            Self::Gzip => "unrequested gzip",
            Self::Slow => "1 byte/s",
            Self::Delayed(_) => "late answers",
            Self::SlowLists(_) => "slow lists",
            Self::OldProtocol => "no HTTP/2",
            Self::PagesExpired => "410 on pages",
            Self::NoStreaming => "no streaming lists",
            Self::NoProtobuf => "no protobuf",
            Self::NoRepresentations { .. } => "no metadata, no tables",
            Self::Flapping(Flap { others_forbidden: true, .. }) => {
                "watches open and fail, other kinds forbidden"
            }
            Self::Flapping(_) => "watches open and fail",
            Self::WatchesRefused { .. } => "watches refused, lists work",
        }
    }

    /// The number of choices for [`Fault::chosen`]; the most important faults have two.
    pub const CHOICES: u32 = 39;

    /// The choices of histories with all kinds of faults.
    pub const USUAL_CHOICES: u32 = 36;

    /// Returns a random one of the first faults and its duration.
    pub fn random(choices: u32, rng: &mut Rng) -> (Self, Duration) {
        let share = if rng.bool() { 1.0 } else { 0.5 };
        Self::chosen(rng.u32(0..choices), share, rng)
    }

    /// Returns a random one of the usual faults with this name.
    #[cfg(test)]
    pub fn of_name(name: &str, rng: &mut Rng) -> Self {
        let all = std::iter::repeat_with(|| Self::random(Self::USUAL_CHOICES, rng).0);
        let mut named = all.take(100_000).filter(|fault| fault.name() == name);
        named.next().expect("a usual fault")
    }

    /// Returns this fault and its duration. `share` is the share of affected requests, if applicable; everything else
    /// is random.
    pub fn chosen(choice: u32, share: f64, rng: &mut Rng) -> (Self, Duration) {
        let fault = match choice {
            0 => Self::Reset,
            1 => Self::Closed,
            2 => Self::GoAway,
            3 => Self::WatchesBroken,
            4 => Self::WatchesEnded,
            5 => Self::Compacted,
            6 => Self::BackendGone,
            7 => Self::Frozen { new_too: false },
            8 => Self::Frozen { new_too: true },
            9 => Self::Suspended,
            10 => Self::WatchesSilent,
            11 => Self::Stalled,
            12 => Self::Restarted { forgets: rng.bool() },
            13 => Self::Restored { held: false },
            14 => Self::Restored { held: true },
            15 => Self::Refused,
            16 => Self::DnsFailure,
            17 => Self::ConnectTimeout,
            18 => {
                let retry_after = rng.bool().then(|| rng.u64(0..15));
                Self::Status { code: 429, retry_after, share }
            }
            19 => Self::Status { code: 500 + rng.u16(0..2) * 3, retry_after: None, share },
            20 => Self::Status { code: 504, retry_after: Some(1), share },
            21 => Self::Status {
                code: [401, 403, 404, 410][rng.usize(0..4)],
                retry_after: None,
                share,
            },
            22 => Self::TokenReplaced,
            23 => Self::Denied(ALL_KINDS[rng.usize(..ALL_KINDS.len())]),
            24 | 25 => Self::NotAList(rng.usize(..9)),
            26 => Self::Truncated { clean: rng.bool() },
            27 => Self::Garbage,
            28 => Self::Gzip,
            29 => Self::Slow,
            30 => Self::Delayed(Duration::from_millis(rng.u64(500..20_000))),
            31 => Self::PagesExpired,
            32 => Self::NoStreaming,
            33 | 34 => Self::Flapping(Flap {
                code: [0, 403, 410, 500][rng.usize(..4)],
                after: Duration::from_millis([0, 0, 300, 1_500, 6_000][rng.usize(..5)]),
                list: Duration::from_secs([0, 2][rng.usize(..2)]),
                others_forbidden: rng.bool(),
            }),
            36 => Self::OldCompacted,
            37 => Self::ListsHang,
            38 => Self::WatchesRefused {
                code: [403, 429, 500, 503][rng.usize(..4)],
                streaming: rng.bool(),
            },
            _ if rng.bool() => Self::NoProtobuf,
            _ => Self::NoRepresentations { refuses: rng.bool() },
        };
        let duration = fault.duration(rng);
        (fault, duration)
    }

    /// Returns a random duration of this fault, zero if it is over at once.
    pub fn duration(&self, rng: &mut Rng) -> Duration {
        Duration::from_millis(match self {
            Self::Reset
            | Self::Closed
            | Self::GoAway
            | Self::WatchesBroken
            | Self::WatchesEnded
            | Self::Compacted
            | Self::OldCompacted
            | Self::WatchesExpired
            | Self::Frozen { new_too: false }
            | Self::WatchesSilent
            | Self::TokenRotated
            | Self::BackendGone => 0,
            Self::Restarted { .. } | Self::Restored { .. } => rng.u64(300..6_000),
            Self::Denied(_) => rng.u64(10_000..150_000),
            Self::Flapping(_) | Self::WatchesRefused { .. } => rng.u64(15_000..50_000),
            _ => rng.u64(500..25_000),
        })
    }

    /// Returns the time within which scrapes may be stale, counted from the start of the fault.
    pub fn grace(&self, duration: Duration) -> Duration {
        let after = duration + *RECOVERY;
        match self {
            Self::Status { retry_after: Some(seconds), .. } => {
                after + Duration::from_secs(*seconds)
            }
            Self::Overloaded { longest } => after + Duration::from_secs(*longest),
            // The last peer that was connected falls silent last.
            Self::Frozen { new_too: true } => duration + *SILENCE,
            // A watch from a future version is silent, which is only noticed at its end.
            Self::Restored { held: true } => duration + *SILENCE,
            Self::WatchesSilent => *STREAM_SILENCE + *RECOVERY,
            Self::ListsHang => duration + *LIST_SILENCE + *RECOVERY,
            _ if self.is_noticed_late() => after.max(*SILENCE),
            _ => after,
        }
    }

    /// Returns true if the fault is a silence, which is only noticed after a while.
    pub fn is_noticed_late(&self) -> bool {
        matches!(
            self,
            Self::Frozen { .. }
                | Self::Suspended
                | Self::WatchesSilent
                | Self::BackendGone
                | Self::Stalled
                | Self::ConnectTimeout
                | Self::Restored { held: true }
        )
    }

    /// Returns true if the server refuses many kinds as if permissions were missing.
    pub fn is_refusal_of_many(&self) -> bool {
        matches!(
            self,
            Self::Status { code: 401 | 403 | 404, .. }
                | Self::Flapping(Flap { others_forbidden: true, .. })
                | Self::WatchesRefused { code: 403, .. }
        )
    }

    /// Returns true if the process only has to reopen its watches.
    pub fn is_disconnect(&self) -> bool {
        matches!(
            self,
            Self::Reset
                | Self::Closed
                | Self::GoAway
                | Self::WatchesBroken
                | Self::WatchesEnded
                | Self::OldCompacted
        )
    }

    /// Returns true if bytes that were sent before arrive late.
    pub fn is_slow(&self) -> bool {
        matches!(self, Self::Slow | Self::Suspended)
    }

    /// Returns true if the fault is a silence without an observable end.
    pub fn is_silence(&self) -> bool {
        matches!(self, Self::Frozen { new_too: false } | Self::WatchesSilent | Self::BackendGone)
    }
}
