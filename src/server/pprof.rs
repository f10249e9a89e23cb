//! `/debug/pprof/`: CPU and heap profiles of this process.
//!
//! | Path | Content |
//! |---|---|
//! | `/debug/pprof/` | index |
//! | `profile?seconds=N` | CPU samples in pprof protobuf, gzip (default 30 s) |
//! | `flamegraph?seconds=N` | the same as an SVG |
//! | `heap`, `allocs` | sampled live heap in pprof protobuf, gzip; with `seconds=N` the difference over that time |
//! | `heap_flamegraph` | the live heap as an SVG |
//! | any of these with `keep=NAME` | the same; the process keeps the profile under this name |
//! | any of these with `base=NAME` | the difference from the kept profile ([`Comparison`]) |
//! | `threads`, `goroutine`, `threadcreate` | the threads of the process, as text |
//! | `cmdline` | argv, NUL-separated |
//! | `symbol?0xADDRESS+0xADDRESS` | function names; without addresses, the number of symbols |
//! | `trace`, `block`, `mutex` | 404 with the reason: [`UNAVAILABLE`] |
//!
//! CPU sampling costs nothing while no profile runs. Heap sampling runs from the start of the process, so
//! that the first profile shows every live object. Names come from the program's symbol table: profiles
//! need no debug information and no writable folder, and leave no memory behind.
//!
//! | Module | Purpose |
//! |---|---|
//! | [`mod@cpu`] | CPU profiler |
//! | [`mod@heap`] | heap profiler |
//! | [`symbols`], [`elf`] | symbol lookup |
//! | [`profile`], [`mod@flame_graph`] | encodings of a profile |
//! | [`kept`] | profiles that the process keeps |
//! | [`saved`] | profiles read from files |

mod cpu;
mod elf;
pub(crate) mod flame_graph;
mod heap;
mod kept;
mod profile;
pub(crate) mod saved;
mod symbols;

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use hyper::header::{CONTENT_DISPOSITION, HeaderName, HeaderValue};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep_until};

use super::body::Body;
use super::connection::Peer;
use super::query::{self, QueryError};
use super::report_queue::ReportQueue;
use super::response::{self, Response, nosniff};
use super::router::{Call, Methods, Router};
use crate::status::words::duration;
use crate::telemetry::process;
use crate::util::allocator;
use kept::KEPT;
use profile::Profile;
use symbols::Symbols;

/// The default duration of a CPU profile, in seconds.
const DEFAULT_SECONDS: u64 = 30;

/// The maximum duration of a profile, in seconds.
const MAX_SECONDS: u64 = 600;

/// The interval for collecting samples of a running profile and for checking that its client is still connected.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Tells `go tool pprof` that an error comes from a profile endpoint.
const X_GO_PPROF: HeaderName = HeaderName::from_static("x-go-pprof");

/// The name under which the process keeps the profile of the response.
const X_KEPT: HeaderName = HeaderName::from_static("x-kstatd-kept");

/// The path prefix of profiles.
pub(crate) const PREFIX: &str = "/debug/pprof/";

/// Profiles of Go's runtime without an equivalent here, with the reason.
const UNAVAILABLE: [(&str, &str); 3] = [
    ("trace", "there is no Go runtime to trace; use profile or flamegraph for CPU time"),
    ("block", "kstatd does not record blocking on locks"),
    ("mutex", "kstatd does not record lock contention"),
];

/// Allows one CPU profile at a time, because the timer belongs to the process.
static CPU: Mutex<()> = Mutex::const_new(());

/// Allows one heap profile at a time, because each costs CPU and temporarily memory.
static HEAP: Mutex<()> = Mutex::const_new(());

/// Allows one symbol lookup at a time, because each reads the entire table and blocks a thread.
static SYMBOLS: Mutex<()> = Mutex::const_new(());

/// Returns the routes below `/debug/pprof/`. `symbol` is the set of methods for symbol requests:
/// Go's tool posts addresses of mappings without names.
pub fn routes(symbol: Methods) -> Router {
    let path = |name: &str| format!("{PREFIX}{name}");
    // A client that does not read its profile delays others, but only a few profiles are held.
    let queues = [(); 3].map(|()| ReportQueue::new());
    let [of_cpu, of_heap, of_symbols] = &queues;
    let mut router = Router::default()
        .at(PREFIX, Methods::Read, index)
        .at_async(&path("profile"), Methods::Read, queued(of_cpu, |call| cpu(call, Form::Pprof)))
        .at_async(
            &path("flamegraph"),
            Methods::Read,
            queued(of_cpu, |call| cpu(call, Form::Flamegraph)),
        )
        .at(&path("cmdline"), Methods::Read, |_| {
            nosniff(response::text(200, process::arguments().join("\0")))
        })
        .at_async(&path("symbol"), symbol, queued(of_symbols, names))
        .at_async(
            &path("heap_flamegraph"),
            Methods::Read,
            queued(of_heap, |call| heap(call, Form::Flamegraph)),
        );
    for name in ["heap", "allocs"] {
        let profile = |call| {
            let form = if wants_text(&call) { Form::Text } else { Form::Pprof };
            heap(call, form)
        };
        router = router.at_async(&path(name), Methods::Read, queued(of_heap, profile));
    }
    for (name, why) in UNAVAILABLE {
        router = router.at(&path(name), Methods::Read, move |_| *refusal(404, format!("{why}\n")));
    }
    for name in ["threads", "goroutine", "threadcreate"] {
        router = router
            .at(&path(name), Methods::Read, |_| nosniff(response::text(200, process::threads())));
    }
    router
}

/// Returns a handler that answers requests in their turn. The response may be a refusal.
fn queued<F: Future<Output = Result<Response, Box<Response>>> + Send>(
    queue: &ReportQueue,
    respond: impl Fn(Call) -> F + Copy + Send + Sync + 'static,
) -> impl Fn(Call) -> Pin<Box<dyn Future<Output = Response> + Send>> + Send + Sync + 'static {
    let queue = queue.clone();
    move |call| {
        let answer = queue.clone().answer(call, move |call| async move {
            respond(call).await.unwrap_or_else(|refusal| *refusal)
        });
        Box::pin(answer)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Pprof,
    Flamegraph,
    /// The sampler's own text format: `?debug=1`.
    Text,
}

impl Form {
    /// Returns a response with the profile `name`.
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

fn index(call: &Call) -> Response {
    if call.path != PREFIX {
        return *refusal(404, "Unknown profile\n");
    }
    let mut kept = Vec::new();
    let mut links = vec![
        ["profile?seconds=30", "profile", "CPU time, pprof format"],
        ["flamegraph?seconds=10", "flamegraph", "CPU time, SVG"],
        ["heap", "heap", "live heap, pprof format"],
        ["heap?seconds=10", "heap", "what changes in it, pprof format"],
        ["heap_flamegraph", "heap_flamegraph", "live heap, SVG"],
        ["threads", "threads", "threads of the process"],
        ["cmdline", "cmdline", "command line"],
        ["symbol", "symbol", "names of functions, for tools"],
    ];
    for kept::Kept { name, profile, since } in KEPT.all() {
        let path = if profile.is_cpu() { "flamegraph?seconds=10&" } else { "heap_flamegraph?" };
        let ago = duration(since.elapsed().as_secs_f64());
        let about = format!("change since the profile kept {ago} ago, SVG");
        kept.push((format!("{path}base={name}"), name, about));
    }
    links.extend(kept.iter().map(|(href, name, about)| [&**href, name, about]));
    let page = super::landing_page::page(
        "Profiles",
        "Open a profile with go tool pprof, or take the SVG forms in the browser. With keep=NAME the process keeps a \
         profile; with base=NAME a later one shows what has changed since.",
        "/debug/pprof/",
        &links,
    );
    nosniff(response::with_type(200, "text/html; charset=utf-8", Body::whole(page)))
}

/// Implements the protocol of `pprof -symbolize=remote`: the number of symbols (any number but 0
/// will do), and a line for each address of the query that is in a function.
async fn names(call: Call) -> Result<Response, Box<Response>> {
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let addresses: BTreeSet<u64> = call.query().split('+').filter_map(number).collect();
    let lines = move || {
        let mut text = "num_symbols: 1\n".to_owned();
        if !addresses.is_empty() {
            let symbols = Symbols::of(&addresses);
            for address in addresses {
                if let Some(name) = symbols.name(address) {
                    text.push_str(&format!("{address:#x} {}\n", name.readable));
                }
            }
        }
        Ok(text)
    };
    let (_, text) = aside(SYMBOLS.lock().await, lines).await?;
    Ok(nosniff(response::text(200, text)))
}

/// Returns whether the request has `debug=` with a non-zero integer.
fn wants_text(call: &Call) -> bool {
    query::first(call.query(), "debug")
        .and_then(|text| text.parse::<i64>().ok())
        .is_some_and(|debug| debug != 0)
}

/// Returns a response without a profile, in the form that `go tool pprof` shows.
fn refusal(status: u16, message: impl Into<String>) -> Box<Response> {
    let answer = response::error(status, message);
    Box::new(response::header(answer, X_GO_PPROF, HeaderValue::from_static("1")))
}

/// Returns the response to an invalid parameter.
fn bad(error: QueryError) -> Box<Response> {
    refusal(400, format!("{error}\n"))
}

/// The parameters of a request that relate its profile to others.
struct Comparison {
    /// The name under which the process keeps the profile: `keep`.
    keep: Option<String>,
    /// The kept profile to subtract: `base`.
    base: Option<Arc<Profile>>,
    /// True if the base is scaled to the same total instead of the same duration: `normalize`.
    normalize: bool,
}

impl Comparison {
    /// Parses the parameters of a request for a CPU profile or a heap profile.
    fn read(call: &Call, is_cpu: bool) -> Result<Self, Box<Response>> {
        let name = |parameter: &str| match query::first(call.query(), parameter) {
            Some(name) if !kept::is_name(&name) => {
                let wanted = "up to 64 letters, digits, dots, underscores and dashes";
                Err(bad(QueryError::value(parameter, &name, wanted)))
            }
            name => Ok(name),
        };
        let normalize = query::flag(call.query(), "normalize").map_err(bad)?.unwrap_or(false);
        let (keep, base) = (name("keep")?, name("base")?);
        let base = base.map(|name| find_kept(&name, is_cpu)).transpose()?;
        Ok(Self { keep, base, normalize })
    }

    /// Keeps the profile, then subtracts the base. Returns the profile to show and whether it was kept.
    fn apply(&self, mut profile: Profile) -> (Profile, bool) {
        let keep = |name: &String| KEPT.keep(name, Arc::new(profile.clone()));
        let is_kept = self.keep.as_ref().is_some_and(keep);
        if let Some(base) = &self.base {
            profile.subtract(base, self.normalize);
        }
        (profile, is_kept)
    }

    /// Renders the profile.
    fn render(&self, profile: &Profile, symbols: &Symbols, form: Form) -> Result<Vec<u8>, String> {
        let words = match profile.is_cpu() {
            true => ("CPU time", "The process used no CPU time while it was watched."),
            false => ("Live heap", "Nothing was sampled: too little memory is in use."),
        };
        match form {
            Form::Flamegraph => profile
                .flame_graph(symbols, words, self.base.is_some())
                .map_err(|error| error.to_string()),
            _ => Ok(super::gzip::compress(&profile.encode(symbols))),
        }
    }

    /// Returns the response with a profile.
    fn respond(&self, form: Form, name: &str, bytes: Vec<u8>, is_kept: bool) -> Response {
        let answer = form.respond(name, bytes);
        let kept = self.keep.as_ref().filter(|_| is_kept);
        match kept.and_then(|name| HeaderValue::from_str(name).ok()) {
            Some(name) => response::header(answer, X_KEPT, name),
            None => answer,
        }
    }
}

/// Returns the kept profile with this name.
fn find_kept(name: &str, is_cpu: bool) -> Result<Arc<Profile>, Box<Response>> {
    let Some(profile) = KEPT.find(name) else {
        let names: Vec<String> = KEPT.all().into_iter().map(|kept| kept.name).collect();
        let kept = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let message =
            format!("No profile is kept as {name}; take one with keep={name}. Kept: {kept}\n");
        return Err(refusal(404, message));
    };
    if profile.is_cpu() == is_cpu {
        return Ok(profile);
    }
    let kind = if is_cpu { "heap" } else { "CPU" };
    Err(refusal(400, format!("{name} is a {kind} profile\n")))
}

/// Parses the `seconds` of a request.
fn seconds(call: &Call) -> Result<Option<u64>, Box<Response>> {
    let Some(text) = query::first(call.query(), "seconds") else { return Ok(None) };
    match text.parse() {
        Ok(seconds @ 1..=MAX_SECONDS) => Ok(Some(seconds)),
        _ => {
            let message =
                format!("seconds={text:?} must be a whole number from 1 to {MAX_SECONDS}\n");
            Err(refusal(400, message))
        }
    }
}

/// Acquires the exclusive right to take a profile, or returns a refusal while another is running.
fn only(lock: &'static Mutex<()>, what: &str) -> Result<MutexGuard<'static, ()>, Box<Response>> {
    lock.try_lock().map_err(|_| {
        refusal(429, format!("Another {what} profile is in progress; try again later\n"))
    })
}

/// Returns a placeholder response for a client that has disconnected.
fn disconnected() -> Response {
    response::closing(503, "Client disconnected, profile aborted\n")
}

/// Waits and calls `each` periodically; returns `false` if the client disconnected.
async fn wait(call: &Call, seconds: u64, mut each: impl FnMut()) -> bool {
    let peer = call.head.extensions.get::<Peer>();
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        sleep_until(end.min(Instant::now() + POLL_INTERVAL)).await;
        each();
        if peer.is_some_and(Peer::has_left) {
            return false;
        }
    }
    true
}

/// Runs `work` on the blocking pool under a lock that is held until it is done, even if the client disconnects, and returns
/// freed memory to the system.
async fn aside<T: Send + 'static>(
    only: MutexGuard<'static, ()>,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<(MutexGuard<'static, ()>, T), Box<Response>> {
    let run = move || {
        let result = work();
        allocator::purge();
        Ok((only, result?))
    };
    let done = tokio::task::spawn_blocking(run).await;
    let done = done.unwrap_or_else(|error| Err(error.to_string()));
    done.map_err(|error| refusal(500, format!("The profile failed: {error}\n")))
}

async fn cpu(call: Call, form: Form) -> Result<Response, Box<Response>> {
    let seconds = seconds(&call)?.unwrap_or(DEFAULT_SECONDS);
    let comparison = Comparison::read(&call, true)?;
    if call.head.method == Method::HEAD {
        return Ok(form.respond("profile", Vec::new()));
    }
    let only = only(&CPU, "CPU")?;
    let session = cpu::Session::start()
        .map_err(|error| refusal(500, format!("Could not enable CPU profiling: {error}\n")))?;
    let mut counts = cpu::Counts::default();
    if !wait(&call, seconds, || session.collect(&mut counts)).await {
        return Ok(disconnected());
    }
    let report = move || {
        let (profile, is_kept) = comparison.apply(session.finish(counts));
        let symbols = Symbols::of(&profile.addresses());
        let bytes = comparison.render(&profile, &symbols, form)?;
        Ok(comparison.respond(form, "profile", bytes, is_kept))
    };
    // Ending the session stops the timer of the process, which must not be the next profile's.
    aside(only, report).await.map(|(_, response)| response)
}

async fn heap(call: Call, form: Form) -> Result<Response, Box<Response>> {
    let name = call.path.strip_prefix(PREFIX).unwrap_or_default();
    let (seconds, comparison) = (seconds(&call)?, Comparison::read(&call, false)?);
    let is_compared = comparison.keep.is_some() || comparison.base.is_some();
    if is_compared && (seconds.is_some() || form == Form::Text) {
        let message = "keep and base cannot be combined with seconds or debug of a heap profile\n";
        return Err(refusal(400, message));
    }
    if call.head.method == Method::HEAD {
        return Ok(form.respond(name, Vec::new()));
    }
    if !heap::is_sampled() {
        let message = "This build's allocator does not sample the heap\n";
        return Err(refusal(501, message));
    }
    let mut only = only(&HEAP, "heap")?;
    let stacks = || {
        let dump = heap::dump().map_err(|error| error.to_string())?;
        heap::parse(&dump)
    };
    let before = match seconds {
        None => None,
        Some(seconds) => {
            let before;
            (only, (_, before)) = aside(only, stacks).await?;
            if !wait(&call, seconds, || {}).await {
                return Ok(disconnected());
            }
            Some(before)
        }
    };
    let name = name.to_owned();
    let report = move || {
        if form == Form::Text {
            let text = heap::dump().map_err(|error| error.to_string())?;
            return Ok(form.respond(&name, text.into_bytes()));
        }
        let (interval, mut now) = stacks()?;
        if let Some(before) = before {
            now = heap::difference(now, before);
        }
        let (mut profile, mut symbols) = heap::profile(interval, now);
        profile.duration = seconds.map(Duration::from_secs);
        let (profile, is_kept) = comparison.apply(profile);
        if comparison.base.is_some() {
            symbols = Symbols::of(&profile.addresses());
        }
        let bytes = comparison.render(&profile, &symbols, form)?;
        Ok(comparison.respond(form, &name, bytes, is_kept))
    };
    aside(only, report).await.map(|(_, response)| response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// The session of a CPU profile ends with its report: the next one must not begin before.
    #[tokio::test]
    async fn a_report_keeps_its_lock_after_its_client_disconnects() {
        static LOCK: Mutex<()> = Mutex::const_new(());
        let (begun, has_begun) = mpsc::channel();
        let (go_on, wait) = mpsc::channel::<()>();
        let only = only(&LOCK, "test").ok().expect("free");
        let report = move || {
            begun.send(()).expect("the test waits");
            wait.recv().map_err(|error| error.to_string())
        };
        let request = tokio::spawn(aside(only, report));
        tokio::task::spawn_blocking(move || has_begun.recv()).await.expect("run").expect("begun");
        request.abort();
        assert!(request.await.err().expect("it was left").is_cancelled());
        assert!(LOCK.try_lock().is_err(), "the report is not done");
        go_on.send(()).expect("it runs");
        drop(LOCK.lock().await);
    }
}
