//! `/debug/pprof/`: where this process spends its time and its memory.
//!
//! | Path | What |
//! |---|---|
//! | `/debug/pprof/` | index |
//! | `profile?seconds=N` | CPU samples in pprof protobuf, gzip (default 30 s) |
//! | `flamegraph?seconds=N` | the same as an SVG |
//! | `heap`, `allocs` | sampled live heap in pprof protobuf, gzip; with `seconds=N` what changed in them |
//! | `heap_flamegraph` | the live heap as an SVG |
//! | `threads`, `goroutine`, `threadcreate` | the threads of the process, as text |
//! | `cmdline` | argv, NUL-separated |
//! | `symbol?0xADDRESS+0xADDRESS` | names of functions; without addresses, that there are names |
//! | `trace`, `block`, `mutex` | 404, and why: [`WITHOUT_MEANING`] |
//!
//! CPU sampling costs nothing while no profile runs. Heap sampling runs from the start of the process, so
//! that the first profile shows everything that lives. Names come from the program's symbol table: profiles
//! need no debug information, no folder to write to, and leave no memory behind.
//!
//! | Part | For |
//! |---|---|
//! | [`mod@cpu`] | samples of the CPU's time |
//! | [`mod@heap`] | samples of the heap |
//! | [`symbols`], [`elf`] | names for addresses |
//! | [`profile`] | the forms of a profile |

mod cpu;
mod elf;
mod heap;
mod profile;
mod symbols;

use std::collections::BTreeSet;
use std::time::Duration;

use hyper::Method;
use hyper::header::{CONTENT_DISPOSITION, HeaderName, HeaderValue};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep_until};

use super::body::Body;
use super::connection::Peer;
use super::query;
use super::response::{self, Response, nosniff};
use super::router::{Call, Methods, Router};
use crate::allocator;

/// Length of a CPU profile in seconds when the request names none.
const DEFAULT_SECONDS: u64 = 30;

/// Longest profile in seconds.
const MAX_SECONDS: u64 = 600;

/// How often a running profile fetches its samples and looks whether anybody still waits for it.
const LOOK: Duration = Duration::from_millis(100);

/// Tells `go tool pprof` that an error comes from a profile's page.
const X_GO_PPROF: HeaderName = HeaderName::from_static("x-go-pprof");

/// Where profiles are.
pub(crate) const PREFIX: &str = "/debug/pprof/";

/// Profiles of Go's runtime for which this process has nothing, and why.
const WITHOUT_MEANING: [(&str, &str); 3] = [
    (
        "trace",
        "There is no Go runtime here whose events could be traced; profile and flamegraph show the CPU's time",
    ),
    ("block", "Nothing is noted of how long a thread waits for another"),
    ("mutex", "Nothing is noted of how long a lock is waited for"),
];

/// One CPU profile at a time: the timer belongs to the process.
static CPU: Mutex<()> = Mutex::const_new(());

/// One heap profile at a time: each costs CPU and, while it is written, memory.
static HEAP: Mutex<()> = Mutex::const_new(());

/// One look into the symbol table at a time: each reads all of it, and others wait on the same threads.
static SYMBOLS: Mutex<()> = Mutex::const_new(());

/// The routes below `/debug/pprof/`. `symbol` is how names may be asked for: Go's tool posts addresses of mappings that
/// have no names.
pub fn routes(symbol: Methods) -> Router {
    let path = |name: &str| format!("{PREFIX}{name}");
    let mut router = Router::default()
        .at(PREFIX, Methods::Read, index)
        .at_async(&path("profile"), Methods::Read, |call| cpu(call, Form::Pprof))
        .at_async(&path("flamegraph"), Methods::Read, |call| cpu(call, Form::Flamegraph))
        .at(&path("cmdline"), Methods::Read, |_| nosniff(response::text(200, cmdline())))
        .at_async(&path("symbol"), symbol, names)
        .at_async(&path("heap_flamegraph"), Methods::Read, |call| heap(call, Form::Flamegraph));
    for name in ["heap", "allocs"] {
        router = router.at_async(&path(name), Methods::Read, |call| {
            let form = if wants_text(&call) { Form::Text } else { Form::Pprof };
            heap(call, form)
        });
    }
    for (name, why) in WITHOUT_MEANING {
        router = router.at(&path(name), Methods::Read, move |_| absent(&format!("{why}\n")));
    }
    for name in ["threads", "goroutine", "threadcreate"] {
        router = router.at(&path(name), Methods::Read, |_| {
            nosniff(response::text(200, crate::telemetry::process::threads()))
        });
    }
    router
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Pprof,
    Flamegraph,
    /// As the sampler writes it, for people: `?debug=1`.
    Text,
}

impl Form {
    /// An answer with the profile `name`.
    fn respond(self, name: &str, bytes: Vec<u8>) -> Response {
        let content_type = match self {
            Self::Pprof => "application/octet-stream",
            Self::Flamegraph => "image/svg+xml",
            Self::Text => "text/plain; charset=utf-8",
        };
        let answer = nosniff(response::with_type(200, content_type, Body::whole(bytes)));
        match HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
            Ok(file) if self == Self::Pprof => response::header(answer, CONTENT_DISPOSITION, file),
            _ => answer,
        }
    }
}

/// There is no such profile.
fn absent(why: &str) -> Response {
    response::header(response::error(404, why), X_GO_PPROF, HeaderValue::from_static("1"))
}

fn index(call: &Call) -> Response {
    if call.path != PREFIX {
        return absent("Unknown profile\n");
    }
    let page = super::landing::page(
        "Profiles",
        "Open a profile with go tool pprof, or take the SVG forms in the browser.",
        "/debug/pprof/",
        &[
            super::landing::Link::new("profile?seconds=30", "profile", "CPU time, pprof format"),
            super::landing::Link::new("flamegraph?seconds=10", "flamegraph", "CPU time, SVG"),
            super::landing::Link::new("heap", "heap", "live heap, pprof format"),
            super::landing::Link::new(
                "heap?seconds=10",
                "heap",
                "what changes in it, pprof format",
            ),
            super::landing::Link::new("heap_flamegraph", "heap_flamegraph", "live heap, SVG"),
            super::landing::Link::new("threads", "threads", "threads of the process"),
            super::landing::Link::new("cmdline", "cmdline", "command line"),
            super::landing::Link::new("symbol", "symbol", "names of functions, for tools"),
        ],
    );
    nosniff(response::with_type(200, "text/html; charset=utf-8", Body::whole(page)))
}

fn cmdline() -> String {
    let args: Vec<String> =
        std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    args.join("\0")
}

/// The protocol of `pprof -symbolize=remote`: how many names there are (any number but 0 will do), and a line for each
/// address of the query that is in a function.
async fn names(call: Call) -> Response {
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let addresses: BTreeSet<u64> = call.query().split('+').filter_map(number).collect();
    let lines = move || {
        let mut text = "num_symbols: 1\n".to_owned();
        if !addresses.is_empty() {
            let symbols = symbols::Symbols::of(&addresses);
            for address in addresses {
                if let Some(name) = symbols.name(address) {
                    text.push_str(&format!("{address:#x} {}\n", name.readable));
                }
            }
        }
        Ok(text)
    };
    let _one = SYMBOLS.lock().await;
    match aside(lines).await {
        Ok(text) => nosniff(response::text(200, text)),
        Err(error) => Refusal::from(error).respond(),
    }
}

/// Whether the request has `debug=` and a whole number other than 0.
fn wants_text(call: &Call) -> bool {
    query::first(call.query(), "debug")
        .and_then(|text| text.parse::<i64>().ok())
        .is_some_and(|debug| debug != 0)
}

/// Why there is no profile.
struct Refusal {
    status: u16,
    message: String,
}

impl Refusal {
    fn new(status: u16, message: String) -> Self {
        Self { status, message }
    }

    fn respond(self) -> Response {
        let answer = response::error(self.status, self.message);
        response::header(answer, X_GO_PPROF, HeaderValue::from_static("1"))
    }
}

/// A profile that could not be made.
impl From<String> for Refusal {
    fn from(error: String) -> Self {
        Self::new(500, format!("The profile failed: {error}\n"))
    }
}

/// The `seconds` of a request, if it has them.
fn seconds(call: &Call) -> Result<Option<u64>, Refusal> {
    let Some(text) = query::first(call.query(), "seconds") else { return Ok(None) };
    match text.parse() {
        Ok(seconds @ 1..=MAX_SECONDS) => Ok(Some(seconds)),
        _ => {
            let message =
                format!("seconds={text:?} must be a whole number from 1 to {MAX_SECONDS}\n");
            Err(Refusal::new(400, message))
        }
    }
}

/// The right to take a profile, or the answer to who asks while another has it.
fn only(lock: &'static Mutex<()>, what: &str) -> Result<MutexGuard<'static, ()>, Refusal> {
    lock.try_lock().map_err(|_| {
        let message = format!(
            "A {what} profile is being taken, and there is one at a time: try again when it is done\n"
        );
        Refusal::new(429, message)
    })
}

/// An answer to nobody: the client has left.
fn left() -> Response {
    response::closing(503, "The client has left, its profile has ended\n")
}

/// Waits, and says every now and then that it does; `false` when the client left meanwhile.
async fn wait(call: &Call, seconds: u64, mut each: impl FnMut()) -> bool {
    let peer = call.head.extensions.get::<Peer>();
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        sleep_until(end.min(Instant::now() + LOOK)).await;
        each();
        if peer.is_some_and(Peer::has_left) {
            return false;
        }
    }
    true
}

/// Runs `work` where it may take its time, and gives back the memory that it leaves.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let run = move || {
        let result = work();
        allocator::give_back();
        result
    };
    tokio::task::spawn_blocking(run).await.unwrap_or_else(|error| Err(error.to_string()))
}

async fn cpu(call: Call, form: Form) -> Response {
    take_cpu(&call, form).await.unwrap_or_else(Refusal::respond)
}

async fn take_cpu(call: &Call, form: Form) -> Result<Response, Refusal> {
    let seconds = seconds(call)?.unwrap_or(DEFAULT_SECONDS);
    if call.head.method == Method::HEAD {
        return Ok(form.respond("profile", Vec::new()));
    }
    let _only = only(&CPU, "CPU")?;
    let session = cpu::Session::start()
        .map_err(|error| Refusal::new(500, format!("Could not enable CPU profiling: {error}\n")))?;
    let mut counts = cpu::Counts::default();
    if !wait(call, seconds, || session.collect(&mut counts)).await {
        return Ok(left());
    }
    let report = move || {
        let profile = session.finish(counts);
        let symbols = symbols::Symbols::of(&profile.addresses());
        match form {
            Form::Flamegraph => profile.flame_graph(
                &symbols,
                "CPU time",
                "The process used no CPU time while it was watched.",
            ),
            _ => Ok(super::gzip::compress(&profile.encode(&symbols))),
        }
    };
    Ok(form.respond("profile", aside(report).await?))
}

async fn heap(call: Call, form: Form) -> Response {
    take_heap(&call, form).await.unwrap_or_else(Refusal::respond)
}

async fn take_heap(call: &Call, form: Form) -> Result<Response, Refusal> {
    let name = call.path.strip_prefix(PREFIX).unwrap_or_default();
    let seconds = seconds(call)?;
    if call.head.method == Method::HEAD {
        return Ok(form.respond(name, Vec::new()));
    }
    if !heap::is_sampled() {
        let message = "This build's allocator does not sample the heap\n";
        return Err(Refusal::new(501, message.to_owned()));
    }
    let _only = only(&HEAP, "heap")?;
    let stacks = || {
        let dump = heap::dump().map_err(|error| error.to_string())?;
        heap::parse(&dump)
    };
    let before = match seconds {
        None => None,
        Some(seconds) => {
            let (_, before) = aside(stacks).await?;
            if !wait(call, seconds, || {}).await {
                return Ok(left());
            }
            Some(before)
        }
    };
    let report = move || {
        if form == Form::Text {
            return heap::dump().map(String::into_bytes).map_err(|error| error.to_string());
        }
        let (interval, mut now) = stacks()?;
        if let Some(before) = before {
            now = heap::difference(now, before);
        }
        let (mut profile, symbols) = heap::profile(interval, now);
        profile.duration = seconds.map(Duration::from_secs);
        match form {
            Form::Flamegraph => profile.flame_graph(
                &symbols,
                "Live heap",
                "Nothing was sampled: too little memory is in use.",
            ),
            _ => Ok(super::gzip::compress(&profile.encode(&symbols))),
        }
    };
    Ok(form.respond(name, aside(report).await?))
}
