//! What goes wrong, for how long, and until when answers may be of the past because of it.

use std::time::Duration;

use fastrand::Rng;

use super::cluster::{KINDS, Kind};

/// How long after the end of a fault answers may be of the past.
const RECOVERY: Duration = Duration::from_secs(10);
/// How long after a peer fell silent.
const SILENCE: Duration = Duration::from_secs(60);

/// A fault.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// All connections break.
    Reset,
    /// All connections are closed.
    Closed,
    /// HTTP/2 says goodbye, HTTP/1.1 closes what is idle.
    GoAway,
    /// All watches break, connections stay.
    WatchesBroken,
    /// All watches end before their time.
    WatchesEnded,
    /// Old versions are forgotten, and open watches are told.
    Compacted,
    /// Connections fall silent for good; new ones too, until the end.
    Frozen { new_too: bool },
    /// Connections fall silent, new ones too, and go on where they were at the end.
    Suspended,
    /// Watches that are open get nothing any more, although their connections are alive.
    Deaf,
    /// Requests are not answered and watches get nothing until the end.
    Stalled,
    /// The server is away until the end, and may have forgotten old versions.
    Restarted { forgets: bool },
    /// The same, and what there is is an old state under an old version. Who connects meanwhile is refused, or held
    /// until the server takes connections again.
    Restored { held: bool },
    /// Connections are refused.
    Refused,
    /// The name of the server is not known.
    NoName,
    /// Whoever connects gets no answer.
    NoAnswer,
    /// Requests are answered with an error, all or this share of them.
    Status { code: u16, retry_after: Option<u64>, share: f64 },
    /// The token is not good any more; there is another one at the end.
    TokenReplaced,
    /// A kind may not be listed.
    Denied(Kind),
    /// Answers are something else.
    NoList(usize),
    /// Bodies end in the middle.
    Torn { clean: bool },
    /// Bodies end in garbage.
    Garbage,
    /// Bodies are compressed, though nobody asked for it.
    Gzip,
    /// One byte a second on each connection.
    Slow,
    /// Answers come late.
    Late(Duration),
    /// Pages after the first are answered with 410.
    PagesExpired,
    /// The server has no streaming lists.
    NoStreaming,
    /// The server has no protobuf.
    NoProtobuf,
    /// The server gives objects as a whole alone.
    NoParts { refuses: bool },
}

impl Fault {
    /// What the table calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Reset => "connections broken (RST)",
            Self::Closed => "connections closed (FIN)",
            Self::GoAway => "GOAWAY",
            Self::WatchesBroken => "watches broken (RST_STREAM)",
            Self::WatchesEnded => "watches ended early",
            Self::Compacted => "compaction: 410 on watches and pages",
            Self::Frozen { new_too: false } => "connections silent for good",
            Self::Frozen { new_too: true } => "the same, new ones silent too for a while",
            Self::Suspended => "connections silent, then alive again",
            Self::Deaf => "watches silent, connection alive",
            Self::Stalled => "server hangs, connection alive",
            Self::Restarted { .. } => "API server restarted",
            Self::Restored { held: false } => "restored: versions go back",
            Self::Restored { held: true } => "the same, connections are held meanwhile",
            Self::Refused => "connection refused",
            Self::NoName => "name does not resolve",
            Self::NoAnswer => "no answer to connecting",
            Self::Status { code: 429, .. } => "429 with and without Retry-After",
            Self::Status { code: 401, .. } => "401 for requests",
            Self::Status { code: 403 | 404, .. } => "403 or 404 for everything",
            Self::Status { code: 410, .. } => "410 for everything",
            Self::Status { .. } => "500, 503, 504",
            Self::TokenReplaced => "token replaced late",
            Self::Denied(_) => "one kind forbidden",
            Self::NoList(_) => "200 that is no list",
            Self::Torn { .. } => "bodies torn",
            Self::Garbage => "garbage in bodies",
            Self::Gzip => "gzip nobody asked for",
            Self::Slow => "1 byte/s",
            Self::Late(_) => "late answers",
            Self::PagesExpired => "410 on pages",
            Self::NoStreaming => "no streaming lists",
            Self::NoProtobuf => "no protobuf",
            Self::NoParts { .. } => "no metadata, no tables",
        }
    }

    /// How many there are to choose from; some that matter most are there twice.
    pub const CHOICES: u32 = 34;

    /// One at random, and how long it lasts.
    pub fn random(rng: &mut Rng) -> (Self, Duration) {
        let share = if rng.bool() { 1.0 } else { 0.5 };
        Self::chosen(rng.u32(0..Self::CHOICES), share, rng)
    }

    /// This one, met by this share of the requests where it is about them; the rest is random.
    pub fn chosen(choice: u32, share: f64, rng: &mut Rng) -> (Self, Duration) {
        let fault = match choice {
            0 => Self::Reset,
            1 => Self::Closed,
            2 => Self::GoAway,
            3 => Self::WatchesBroken,
            4 => Self::WatchesEnded,
            5 | 6 => Self::Compacted,
            7 => Self::Frozen { new_too: false },
            8 => Self::Frozen { new_too: true },
            9 => Self::Suspended,
            10 => Self::Deaf,
            11 => Self::Stalled,
            12 => Self::Restarted { forgets: rng.bool() },
            13 => Self::Restored { held: false },
            14 => Self::Restored { held: true },
            15 => Self::Refused,
            16 => Self::NoName,
            17 => Self::NoAnswer,
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
            23 => Self::Denied(KINDS[rng.usize(..KINDS.len())]),
            24 | 25 => Self::NoList(rng.usize(..9)),
            26 => Self::Torn { clean: rng.bool() },
            27 => Self::Garbage,
            28 => Self::Gzip,
            29 => Self::Slow,
            30 => Self::Late(Duration::from_millis(rng.u64(500..20_000))),
            31 => Self::PagesExpired,
            32 => Self::NoStreaming,
            _ if rng.bool() => Self::NoProtobuf,
            _ => Self::NoParts { refuses: rng.bool() },
        };
        let lasts = match fault {
            Self::Reset
            | Self::Closed
            | Self::GoAway
            | Self::WatchesBroken
            | Self::WatchesEnded
            | Self::Compacted
            | Self::Frozen { new_too: false }
            | Self::Deaf => 0,
            Self::Restarted { .. } | Self::Restored { .. } => rng.u64(300..6_000),
            Self::Denied(_) => rng.u64(10_000..150_000),
            _ => rng.u64(500..25_000),
        };
        (fault, Duration::from_millis(lasts))
    }

    /// Until when answers may be of the past, counted from its begin.
    pub fn grace(&self, lasts: Duration) -> Duration {
        let after = lasts + RECOVERY;
        match self {
            Self::Status { retry_after: Some(seconds), .. } => {
                after + Duration::from_secs(*seconds)
            }
            // The last peer to fall silent is the one that was reached last.
            Self::Frozen { new_too: true } => lasts + SILENCE,
            // A watch from a version of the future is silent, which is noticed at its end.
            Self::Restored { held: true } => lasts + SILENCE,
            Self::Frozen { .. } | Self::Suspended | Self::Deaf | Self::Stalled | Self::NoAnswer => {
                after.max(SILENCE)
            }
            _ => after,
        }
    }

    /// Whether it begins when somebody falls silent, without an end that could be seen.
    pub fn is_silence(&self) -> bool {
        matches!(self, Self::Frozen { new_too: false } | Self::Deaf)
    }
}
