//! `/debug/pprof/`: where this process spends its time and its memory.
//!
//! | Path | What |
//! |---|---|
//! | `/debug/pprof/` | index |
//! | `profile?seconds=N` | CPU samples in pprof protobuf, gzip (default 30 s) |
//! | `flamegraph?seconds=N` | the same as an SVG |
//! | `heap`, `allocs` | sampled live heap in pprof protobuf, gzip |
//! | `heap_flamegraph` | the same as an SVG |
//! | `threads`, `goroutine`, `threadcreate` | the threads of the process, as text |
//! | `cmdline` | argv, NUL-separated |
//! | `symbol` | answers that profiles carry their symbols |
//!
//! CPU sampling costs nothing while no profile runs. Heap sampling begins with the first request for a
//! heap profile and goes on, so a second request shows what was allocated since.

use std::time::Duration;

use hyper::Method;
use hyper::header::{CONTENT_DISPOSITION, HeaderName, HeaderValue};
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::body::Body;
use super::query;
use super::response::{self, Response, nosniff};
use super::router::{Call, Methods, Router};

/// Samples a second; 99 does not beat with work that runs every 10 ms.
const FREQUENCY: i32 = 99;

/// Length of a CPU profile when the request names none.
const DEFAULT_SECONDS: u64 = 30;

/// Longest CPU profile.
const MAX_SECONDS: u64 = 600;

/// Tells `go tool pprof` that an error comes from a profile's page.
const X_GO_PPROF: HeaderName = HeaderName::from_static("x-go-pprof");

const PREFIX: &str = "/debug/pprof/";

/// One CPU profile at a time: the timer signal belongs to the process.
static PROFILING: Mutex<()> = Mutex::const_new(());

/// The routes below `/debug/pprof/`.
pub fn routes() -> Router {
    let path = |name: &str| format!("{PREFIX}{name}");
    let mut router = Router::default()
        .at(PREFIX, Methods::Read, index)
        .at_async(&path("profile"), Methods::Read, |call| cpu(call, Form::Pprof))
        .at_async(&path("flamegraph"), Methods::Read, |call| cpu(call, Form::Flamegraph))
        .at(&path("cmdline"), Methods::Read, |_| nosniff(response::text(200, cmdline())))
        .at(&path("symbol"), Methods::Read, |_| nosniff(response::text(200, "num_symbols: 1\n")))
        .at_async(&path("heap_flamegraph"), Methods::Read, |call| heap(call, Form::Flamegraph));
    for name in ["heap", "allocs"] {
        router = router.at_async(&path(name), Methods::Read, |call| {
            let form = if wants_text(&call) { Form::Text } else { Form::Pprof };
            heap(call, form)
        });
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

fn index(call: &Call) -> Response {
    if call.path != PREFIX {
        let unknown = response::error(404, "Unknown profile\n");
        return response::header(unknown, X_GO_PPROF, HeaderValue::from_static("1"));
    }
    let page = super::landing::page(
        "Profiles",
        "Open a profile with go tool pprof, or take the SVG forms in the browser.",
        "/debug/pprof/",
        &[
            super::landing::Link::new("profile?seconds=30", "profile", "CPU time, pprof format"),
            super::landing::Link::new("flamegraph?seconds=10", "flamegraph", "CPU time, SVG"),
            super::landing::Link::new(
                "heap",
                "heap",
                "live heap, pprof format; the first request starts the sampling",
            ),
            super::landing::Link::new("heap_flamegraph", "heap_flamegraph", "live heap, SVG"),
            super::landing::Link::new("threads", "threads", "threads of the process"),
            super::landing::Link::new("cmdline", "cmdline", "command line"),
        ],
    );
    nosniff(response::with_type(200, "text/html; charset=utf-8", Body::whole(page)))
}

fn cmdline() -> String {
    let args: Vec<String> =
        std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    args.join("\0")
}

/// Whether the request has `debug=` and a whole number other than 0.
fn wants_text(call: &Call) -> bool {
    query::first(call.query(), "debug")
        .and_then(|text| text.parse::<i64>().ok())
        .is_some_and(|debug| debug != 0)
}

async fn cpu(call: Call, form: Form) -> Response {
    let seconds = match query::first(call.query(), "seconds") {
        None => DEFAULT_SECONDS,
        Some(text) => match text.parse() {
            Ok(seconds @ 1..=MAX_SECONDS) => seconds,
            _ => {
                let message =
                    format!("seconds={text:?} must be a whole number from 1 to {MAX_SECONDS}\n");
                return response::error(400, message);
            }
        },
    };
    if call.head.method == Method::HEAD {
        return form.respond("profile", Vec::new());
    }
    let Ok(_only) = PROFILING.try_lock() else {
        return response::error(500, "Could not enable CPU profiling: a profile is running\n");
    };
    let guard = pprof::ProfilerGuardBuilder::default()
        .frequency(FREQUENCY)
        .blocklist(&["libc", "libgcc", "pthread", "vdso"])
        .build();
    let guard = match guard {
        Ok(guard) => guard,
        Err(error) => {
            return response::error(500, format!("Could not enable CPU profiling: {error}\n"));
        }
    };
    sleep(Duration::from_secs(seconds)).await;
    // Symbols are resolved here, which takes longer than a runtime thread may be held.
    let report = tokio::task::spawn_blocking(move || report(&guard, form)).await;
    match report {
        Ok(Ok(bytes)) => form.respond("profile", bytes),
        Ok(Err(error)) => response::error(500, format!("The profile failed: {error}\n")),
        Err(error) => response::error(500, format!("The profile failed: {error}\n")),
    }
}

fn report(guard: &pprof::ProfilerGuard<'_>, form: Form) -> Result<Vec<u8>, String> {
    use pprof::protos::Message;
    let report = guard.report().build().map_err(|error| error.to_string())?;
    match form {
        Form::Pprof => {
            let profile = report.pprof().map_err(|error| error.to_string())?;
            Ok(super::gzip::compress(&profile.encode_to_vec()))
        }
        Form::Flamegraph => {
            let mut svg = Vec::new();
            report.flamegraph(&mut svg).map_err(|error| error.to_string())?;
            Ok(svg)
        }
        Form::Text => Ok(format!("{report:?}").into_bytes()),
    }
}

async fn heap(call: Call, form: Form) -> Response {
    let name = call.path.strip_prefix(PREFIX).unwrap_or_default();
    if call.head.method == Method::HEAD {
        return form.respond(name, Vec::new());
    }
    let Some(control) = jemalloc_pprof::PROF_CTL.as_ref() else {
        return response::error(501, "This build's allocator does not sample the heap\n");
    };
    let mut control = control.lock().await;
    if !control.activated()
        && let Err(error) = control.activate()
    {
        return response::error(500, format!("Cannot start sampling the heap: {error}\n"));
    }
    let dump = match form {
        Form::Pprof => control.dump_pprof(),
        Form::Text => control.dump().and_then(|mut file| {
            let mut text = Vec::new();
            std::io::Read::read_to_end(&mut file, &mut text)?;
            Ok(text)
        }),
        Form::Flamegraph => control.dump_flamegraph(),
    };
    match dump {
        Ok(bytes) => form.respond(name, bytes),
        Err(error) => response::error(
            500,
            format!(
                "The heap profile failed: {error} (it passes through a file in {}; set TMPDIR to \
                 a writable directory)\n",
                std::env::temp_dir().display()
            ),
        ),
    }
}
