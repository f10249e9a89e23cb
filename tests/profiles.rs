//! `/debug/pprof/`, tested from outside: contents for `go tool pprof`, access, and cleanup.

mod common;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;

use common::{DEADLINE, Program, get, run, until};
use prost::Message;

/// The fields of `perftools.profiles.Profile` that are read.
#[derive(Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
}

#[derive(Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    memory_start: u64,
    #[prost(uint64, tag = "3")]
    memory_limit: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
}

#[derive(Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    address: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
}

impl Profile {
    fn read(bytes: &[u8]) -> Self {
        let mut message = Vec::new();
        flate2::read::GzDecoder::new(bytes).read_to_end(&mut message).expect("gzip");
        Self::decode(message.as_slice()).expect("protobuf")
    }

    fn text(&self, index: i64) -> &str {
        &self.string_table[usize::try_from(index).expect("index")]
    }

    fn kinds(&self) -> Vec<(&str, &str)> {
        let types = self.sample_type.iter().chain(&self.period_type);
        types.map(|kind| (self.text(kind.kind), self.text(kind.unit))).collect()
    }

    /// The labels of a sample.
    fn labels(&self, sample: &Sample) -> Vec<(&str, &str)> {
        sample.label.iter().map(|label| (self.text(label.key), self.text(label.text))).collect()
    }

    /// Returns the function names of each sample, innermost first; empty without names.
    fn stacks(&self) -> Vec<Vec<&str>> {
        let functions: HashMap<u64, &str> =
            self.function.iter().map(|function| (function.id, self.text(function.name))).collect();
        let locations: HashMap<u64, &str> = self
            .location
            .iter()
            .map(|location| (location.id, location.line.first().map(|line| line.function_id)))
            .map(|(id, function)| (id, function.map_or("", |function| functions[&function])))
            .collect();
        let stack = |sample: &Sample| sample.location_id.iter().map(|id| locations[id]).collect();
        self.sample.iter().map(stack).collect()
    }

    /// Asserts that every address lies in its mapping, and that the program's mapping is first and has names.
    fn check_mappings(&self) {
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_kstatd"));
        let first = self.mapping.first().expect("a mapping");
        assert_eq!(std::path::Path::new(self.text(first.filename)), program);
        assert!(first.has_functions);
        let mappings: HashMap<u64, &Mapping> =
            self.mapping.iter().map(|mapping| (mapping.id, mapping)).collect();
        for location in self.location.iter().filter(|location| location.mapping_id != 0) {
            let mapping = mappings[&location.mapping_id];
            let range = mapping.memory_start..mapping.memory_limit;
            assert!(range.contains(&location.address), "{location:?} in {mapping:?}");
        }
        assert!(self.string_table.first().is_some_and(String::is_empty));
        assert!(self.time_nanos > 0);
    }
}

/// Enough series for some thirty samples of the heap, of which one in 512 KiB is taken on average.
/// [`Exporter::with_series`] sets this interval; the default is 2 MiB.
const ENOUGH_SERIES: usize = 100_000;

struct Exporter {
    program: Program,
    web: SocketAddr,
    tcp: SocketAddr,
}

impl Exporter {
    /// Starts the program without a writable temporary directory, with this many series.
    fn with_series(count: usize) -> Self {
        let flags = [
            "--web.listen-address=127.0.0.1:0",
            "--statsd.listen-udp=",
            "--statsd.listen-tcp=127.0.0.1:0",
        ];
        let mut command = common::command("statsd_exporter", flags);
        command.env("TMPDIR", "/nonexistent").stdin(Stdio::null());
        command.env("_RJEM_MALLOC_CONF", "lg_prof_sample:19");
        let program = Program::spawn(&mut command);
        let tcp = program.address(&["Accepting StatsD Traffic"], "tcp");
        let web = program.address(&["Accepting Prometheus Requests"], "addr");
        let exporter = Self { program, web, tcp };
        exporter.grow(0..count);
        exporter
    }

    /// Adds series with these numbers, of which those before exist.
    fn grow(&self, numbers: std::ops::Range<usize>) {
        let mut stream = TcpStream::connect(self.tcp).expect("connect");
        let counted = format!("statsd_exporter_lines_total {}\n", numbers.end);
        let lines: String = numbers
            .map(|index| format!("requests_of_some_service_{index}.with_a_long_name:1|c\n"))
            .collect();
        stream.write_all(lines.as_bytes()).expect("lines");
        drop(stream);
        until("all lines are counted", || {
            get(self.web, "/metrics?name[]=statsd_exporter_lines_total")
                .text()
                .contains(&counted)
                .then_some(())
        });
    }

    /// The bytes of a profile, and the name under which the process keeps it.
    fn fetch(&self, path: &str) -> (Vec<u8>, Option<String>) {
        let answer = get(self.web, &format!("/debug/pprof/{path}"));
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        let kept = answer.header("x-kstatd-kept").map(str::to_owned);
        (answer.body, kept)
    }

    /// Sends a request without reading its response.
    fn begin(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.web).expect("connect");
        stream.set_read_timeout(Some(DEADLINE)).expect("timeout");
        write!(stream, "GET /debug/pprof/{path} HTTP/1.1\r\nHost: test\r\n\r\n").expect("request");
        stream
    }

    fn profile(&self, path: &str) -> Profile {
        Profile::read(&self.fetch(path).0)
    }

    /// Returns the resident bytes.
    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.program.id()));
        let status = status.expect("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        let kilobytes = line.trim().strip_suffix(" kB").expect("kB");
        kilobytes.parse::<u64>().expect("number") * 1024
    }
}

/// Returns whether a function is part of the allocator.
fn is_allocator(name: &str) -> bool {
    let name = name.trim_start_matches('<');
    ["_rjem_", "__rust", "alloc::", "prof_", "imalloc", "do_"]
        .iter()
        .any(|part| name.starts_with(part))
}

#[test]
fn first_heap_profile_shows_live_allocations() {
    let exporter = Exporter::with_series(ENOUGH_SERIES);
    let profile = exporter.profile("heap");
    profile.check_mappings();
    let kinds = [("inuse_objects", "count"), ("inuse_space", "bytes"), ("space", "bytes")];
    assert_eq!(profile.kinds(), kinds);
    assert_eq!(profile.text(profile.default_sample_type), "inuse_space");
    assert_eq!(profile.period, 1 << 19);
    let bytes: i64 = profile.sample.iter().map(|sample| sample.value[1]).sum();
    assert!(bytes > 4 << 20, "{bytes} bytes");
    let stacks = profile.stacks();
    let of_senders =
        |stack: &&Vec<&str>| stack.iter().any(|name| name.contains("kstatd::statsd::"));
    assert!(stacks.iter().any(|stack| of_senders(&stack)), "{stacks:?}");
    for stack in stacks.iter().filter(|stack| stack.len() > 1) {
        assert!(!is_allocator(stack[0]), "{stack:?}");
    }
}

#[test]
fn first_heap_flame_graph_is_an_svg() {
    let exporter = Exporter::with_series(ENOUGH_SERIES);
    let answer = get(exporter.web, "/debug/pprof/heap_flamegraph");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("image/svg+xml")));
    let text = answer.text();
    assert!(text.contains("<svg") && text.contains("kstatd::statsd::"), "{text}");
    let about = [" stacks, ", " objects, ", concat!("; kstatd ", env!("CARGO_PKG_VERSION"))];
    assert!(about.iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn flame_graph_shows_duration_and_load() {
    let exporter = Exporter::with_series(10);
    let text = get(exporter.web, "/debug/pprof/flamegraph?seconds=1").text();
    let version = concat!("Idle time is not drawn; kstatd ", env!("CARGO_PKG_VERSION"));
    for part in ["CPU time", " s watched, ", " samples, ", "% of one core. ", version] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn heap_difference_shows_changes() {
    let exporter = Exporter::with_series(ENOUGH_SERIES);
    let profile = exporter.profile("heap?seconds=1");
    let whole: i64 = exporter.profile("heap").sample.iter().map(|sample| sample.value[1]).sum();
    let changed: i64 = profile.sample.iter().map(|sample| sample.value[1]).sum();
    assert!(changed < whole, "{changed} of {whole} bytes");
}

#[test]
fn cpu_profiles_have_qualified_names_and_threads() {
    let exporter = Exporter::with_series(20_000);
    let web = exporter.web;
    let profile = std::thread::scope(|scope| {
        let profile = scope.spawn(|| exporter.profile("profile?seconds=2"));
        while !profile.is_finished() {
            assert_eq!(get(web, "/metrics").status, 200);
        }
        profile.join().expect("profile")
    });
    profile.check_mappings();
    let kinds = [("samples", "count"), ("cpu", "nanoseconds"), ("cpu", "nanoseconds")];
    assert_eq!(profile.kinds(), kinds);
    assert!(profile.duration_nanos >= 2_000_000_000);
    assert!(!profile.sample.is_empty());
    for sample in &profile.sample {
        assert_eq!(sample.value[1], sample.value[0] * profile.period);
        let labels: Vec<&str> = sample.label.iter().map(|label| profile.text(label.key)).collect();
        assert_eq!(labels, ["thread"]);
        assert!(!profile.text(sample.label[0].text).is_empty());
    }
    let stacks = profile.stacks();
    let names = || stacks.iter().flatten();
    assert!(names().any(|name| name.starts_with("kstatd::")), "{stacks:?}");
    for name in names() {
        let closure = name.contains("{{closure}}") || name.contains("{closure#");
        assert!(!closure || name.contains("::{"), "{name}");
    }
    // The stacks reach from the work to the thread's entry point.
    assert!(stacks.iter().any(|stack| stack.len() > 8), "{stacks:?}");
}

/// The share of the frames of a differential flame graph that grew by themselves, of functions that contain `part`.
fn grown(svg: &str, part: &str) -> f64 {
    let titles = svg.split("<title>").skip(1).filter_map(|rest| rest.split_once("</title>"));
    let shares = titles.filter(|(title, _)| title.contains(part)).filter_map(|(title, _)| {
        let (_, change) = title.rsplit_once("%; ")?;
        change.strip_suffix("%)")?.parse::<f64>().ok()
    });
    shares.sum()
}

/// Writes two profiles and compares them with the command.
fn compare(base: &[u8], now: &[u8], flags: &[&str]) -> common::Output {
    let directory = tempfile::tempdir().expect("directory");
    let paths = ["base.pb.gz", "now.pb.gz"].map(|name| directory.path().join(name));
    for (path, bytes) in paths.iter().zip([base, now]) {
        std::fs::write(path, bytes).expect("file");
    }
    let paths = paths.each_ref().map(|path| path.to_str().expect("UTF-8"));
    run("kstatd", [&["profile", "diff"], &paths[..], flags].concat())
}

#[test]
fn a_heap_that_grew_is_red_and_subtracted_for_tools() {
    let exporter = Exporter::with_series(ENOUGH_SERIES / 2);
    let (before, kept) = exporter.fetch("heap?keep=before");
    assert_eq!(kept.as_deref(), Some("before"));
    exporter.grow(ENOUGH_SERIES / 2..2 * ENOUGH_SERIES);
    let (now, kept) = exporter.fetch("heap");
    assert_eq!(kept, None);
    let svg = get(exporter.web, "/debug/pprof/heap_flamegraph?base=before").text();
    // Three quarters are new. Most is allocated in functions of the standard library, whose share among the hundred samples
    // varies.
    assert!(grown(&svg, "") > 50.0 && grown(&svg, "kstatd::statsd::") > 10.0, "{svg}");
    assert!(svg.contains("red: more than in the base"), "{svg}");
    let output = compare(&before, &now, &[]);
    assert!(output.status.success(), "{}", output.stderr);
    assert!(grown(&output.stdout, "") > 50.0, "{}", output.stdout);
    // A heap of the same shape that is twice as large has grown by half of what it is now, and with the same total by nothing.
    let mut twice = Profile::read(&now);
    twice.sample.iter_mut().flat_map(|sample| &mut sample.value).for_each(|value| *value *= 2);
    let larger = twice.encode_to_vec();
    for (flags, growth) in [(&[][..], 50.0), (&["--normalize"], 0.0)] {
        let output = compare(&now, &larger, flags).stdout;
        assert!((grown(&output, "") - growth).abs() < 1.0, "{flags:?}: {output}");
    }
    let change = exporter.profile("heap?base=before");
    let (mut own, mut base) = (0, 0);
    for sample in &change.sample {
        match &change.labels(sample)[..] {
            [] => own += sample.value[1],
            [("pprof::base", "true")] => base += sample.value[1],
            other => panic!("{other:?}"),
        }
    }
    let was: i64 = Profile::read(&before).sample.iter().map(|sample| sample.value[1]).sum();
    assert_eq!(base, -was);
    assert!(own > 2 * was, "{own} after {was}");
    change.check_mappings();
}

#[test]
fn work_that_is_new_is_red() {
    let exporter = Exporter::with_series(20_000);
    let (idle, kept) = exporter.fetch("profile?seconds=1&keep=idle");
    assert_eq!(kept.as_deref(), Some("idle"));
    let scraped = |path: &'static str| {
        std::thread::scope(|scope| {
            let exporter = &exporter;
            let profile = scope.spawn(move || exporter.fetch(path).0);
            while !profile.is_finished() {
                assert_eq!(get(exporter.web, "/metrics").status, 200);
            }
            profile.join().expect("profile")
        })
    };
    let svg = String::from_utf8(scraped("flamegraph?seconds=2&base=idle")).expect("UTF-8");
    assert!(grown(&svg, "") > 50.0, "{svg}");
    let busy = scraped("profile?seconds=2");
    let (forward, backward) = (compare(&idle, &busy, &[]), compare(&busy, &idle, &[]));
    assert!(grown(&forward.stdout, "") > 50.0, "{}", forward.stdout);
    assert!(grown(&backward.stdout, "") <= 0.0, "{}", backward.stdout);
    let change = Profile::read(&scraped("profile?seconds=1&base=idle&normalize=1"));
    let labels: Vec<_> = change.sample.iter().map(|sample| change.labels(sample)).collect();
    assert!(labels.iter().all(|labels| labels[0].0 == "thread"), "{labels:?}");
}

#[test]
fn the_command_writes_a_file_and_names_what_it_cannot_compare() {
    let exporter = Exporter::with_series(10_000);
    let (cpu, heap) = (exporter.fetch("profile?seconds=1").0, exporter.fetch("heap").0);
    let directory = tempfile::tempdir().expect("directory");
    let svg = directory.path().join("change.svg");
    let output = compare(&heap, &heap, &["--file", svg.to_str().expect("UTF-8")]);
    assert_eq!((output.status.success(), &*output.stdout), (true, ""), "{}", output.stderr);
    let svg = std::fs::read_to_string(svg).expect("written");
    assert!(svg.contains("<svg") && grown(&svg, "") == 0.0, "{svg}");
    for (base, now, part) in [
        (&cpu[..], &heap[..], "the base has cpu (nanoseconds), the other profile inuse_space"),
        (b"no profile", &heap, "base.pb.gz: not a pprof profile"),
        (&heap, b"\x1f\x8b\x08junk", "now.pb.gz: damaged gzip stream"),
    ] {
        let output = compare(base, now, &[]);
        assert_eq!((output.status.code(), &*output.stdout), (Some(1), ""));
        assert!(output.stderr.contains(part), "{}", output.stderr);
    }
    let output = run("kstatd", ["profile", "diff", "/nonexistent/a", "/nonexistent/b"]);
    assert!(output.stderr.contains("/nonexistent/a: No such file"), "{}", output.stderr);
}

#[test]
fn kept_profiles_have_names_and_bounds() {
    let exporter = Exporter::with_series(ENOUGH_SERIES);
    for (path, status, part) in [
        ("heap?keep=a%20b", 400, "keep=\"a b\" is invalid"),
        ("flamegraph?seconds=1&base=", 400, "base=\"\" is invalid"),
        ("heap?base=none", 404, "No profile is kept as none; take one with keep=none. Kept: none"),
        ("heap?keep=a&seconds=1", 400, "cannot be combined"),
        ("heap?keep=a&debug=1", 400, "cannot be combined"),
        ("heap?keep=a&normalize=2", 400, "0 or 1"),
    ] {
        let answer = get(exporter.web, &format!("/debug/pprof/{path}"));
        assert_eq!((answer.status, answer.header("x-go-pprof")), (status, Some("1")), "{path}");
        assert!(answer.text().contains(part), "{path}: {}", answer.text());
    }
    exporter.fetch("heap?keep=first");
    let before = exporter.resident();
    for number in 0..30 {
        let (_, kept) = exporter.fetch(&format!("heap_flamegraph?keep=number-{number}"));
        assert_eq!(kept, Some(format!("number-{number}")));
    }
    let answer = get(exporter.web, "/debug/pprof/profile?seconds=1&base=number-29");
    assert_eq!((answer.status, &*answer.text()), (400, "number-29 is a heap profile\n"));
    // The oldest are gone, and the page has a link to each of the others.
    assert_eq!(get(exporter.web, "/debug/pprof/heap?base=first").status, 404);
    let index = get(exporter.web, "/debug/pprof/").text();
    let links: Vec<_> = index.split("base=number-").skip(1).collect();
    assert_eq!(links.len(), 8, "{index}");
    for number in 22..30 {
        assert!(index.contains(&format!("heap_flamegraph?base=number-{number}\"")), "{index}");
    }
    until("at most 8 MiB more than with one", || {
        (exporter.resident() <= before + (8 << 20)).then_some(())
    });
}

#[test]
fn one_profile_at_a_time_until_its_client_disconnects() {
    let exporter = Exporter::with_series(10);
    for (long, short) in [
        ("profile?seconds=600", "profile?seconds=1"),
        ("flamegraph?seconds=600", "flamegraph?seconds=1"),
        ("heap?seconds=600", "heap"),
        ("allocs?seconds=600", "heap_flamegraph"),
    ] {
        let ask = || get(exporter.web, &format!("/debug/pprof/{short}"));
        let (first, refusal) = until("the second is refused", || {
            // Either may run first: repeats until it is the long one.
            let first = exporter.begin(long);
            let answer = ask();
            (answer.status != 200).then_some((first, answer))
        });
        assert_eq!(refusal.status, 429, "{short}");
        assert!(refusal.text().contains("in progress"), "{}", refusal.text());
        drop(first);
        until("the profile ends with its client", || (ask().status == 200).then_some(()));
    }
}

#[test]
fn seconds_have_bounds() {
    let exporter = Exporter::with_series(1);
    for seconds in ["0", "601", "-1", "1.5", "x", "", "99999999999999999999"] {
        for profile in ["profile", "flamegraph", "heap", "allocs", "heap_flamegraph"] {
            let answer = get(exporter.web, &format!("/debug/pprof/{profile}?seconds={seconds}"));
            assert_eq!(answer.status, 400, "{profile} {seconds}");
            assert!(answer.text().contains("from 1 to 600"), "{}", answer.text());
        }
    }
}

#[test]
fn profiles_free_their_memory() {
    let exporter = Exporter::with_series(60_000);
    assert_eq!(get(exporter.web, "/metrics").status, 200);
    let before = exporter.resident();
    for _ in 0..6 {
        exporter.profile("heap");
    }
    exporter.profile("profile?seconds=1");
    assert_eq!(get(exporter.web, "/debug/pprof/heap_flamegraph").status, 200);
    until("at most a tenth more than before", || {
        (exporter.resident() * 10 <= before * 11).then_some(())
    });
}

/// Endpoints without meaning for kstatd explain that to people and tools.
#[test]
fn profiles_of_the_go_runtime_are_404_with_a_reason() {
    let exporter = Exporter::with_series(1);
    for (profile, part) in [("trace", "no Go runtime"), ("block", "blocking"), ("mutex", "lock")] {
        for query in ["", "?debug=1", "?seconds=1"] {
            let answer = get(exporter.web, &format!("/debug/pprof/{profile}{query}"));
            assert_eq!((answer.status, answer.header("x-go-pprof")), (404, Some("1")), "{profile}");
            assert!(answer.text().contains(part), "{profile}: {}", answer.text());
        }
    }
    assert_eq!(get(exporter.web, "/debug/pprof/nonsense").text(), "Unknown profile\n");
}

/// The index page links to every profile, and each link works.
#[test]
fn index_links_to_every_profile() {
    let exporter = Exporter::with_series(10);
    let index = get(exporter.web, "/debug/pprof/").text();
    let links: Vec<&str> =
        index.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    for name in ["profile", "flamegraph", "heap", "heap_flamegraph", "threads", "cmdline", "symbol"]
    {
        let link = links.iter().find(|link| link.split('?').next() == Some(name));
        let link = link.unwrap_or_else(|| panic!("no link to {name} in {index}"));
        let (path, query) = link.split_once('?').unwrap_or((link, ""));
        let query = if query.is_empty() { "" } else { "?seconds=1" };
        let answer = get(exporter.web, &format!("/debug/pprof/{path}{query}"));
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.body.is_empty(), "{path}");
    }
}

/// `symbol` returns the same names for addresses as the profile.
#[test]
fn symbols_are_looked_up_by_address() {
    let exporter = Exporter::with_series(ENOUGH_SERIES);
    let profile = exporter.profile("heap");
    let (stacks, mut seen) = (profile.stacks(), 0);
    for (sample, stack) in profile.sample.iter().zip(&stacks).take(20) {
        for (id, name) in sample.location_id.iter().zip(stack).filter(|(_, name)| !name.is_empty())
        {
            let location = profile.location.iter().find(|location| location.id == *id);
            let address = location.expect("a location").address;
            let path = format!("/debug/pprof/symbol?0x{address:x}+0x1+nonsense");
            let answer = get(exporter.web, &path).text();
            assert_eq!(answer, format!("num_symbols: 1\n{address:#x} {name}\n"));
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} addresses");
    assert_eq!(get(exporter.web, "/debug/pprof/symbol").text(), "num_symbols: 1\n");
    // Under this name as in the original.
    let posted = common::request(exporter.web, "POST", "/debug/pprof/symbol", &[]);
    assert_eq!(posted.expect("an answer").status, 404);
}

/// Returns an address of this host that is not a loopback address, if there is one.
fn remote_address(port: u16) -> Option<SocketAddr> {
    // Connecting a UDP socket sends nothing; it only selects the route.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("198.51.100.1:9").ok()?;
    Some(SocketAddr::new(socket.local_addr().ok()?.ip(), port))
}

/// `kstatd run` refuses profiles to remote clients by default.
#[test]
fn remote_clients_get_profiles_only_with_everybody() {
    for (flag, status) in [("--profiles=this-host", 403), ("--profiles=everybody", 200)] {
        let program = Program::start(
            "kstatd",
            [
                "--listen=127.0.0.1:0",
                "--telemetry-listen=0.0.0.0:0",
                "--statsd.listen-udp=",
                "--statsd.listen-tcp=127.0.0.1:0",
                flag,
            ],
        );
        let telemetry = program.address(&["Started self metrics server"], "address");
        let here = SocketAddr::from(([127, 0, 0, 1], telemetry.port()));
        let heap = get(here, "/debug/pprof/heap?keep=before");
        assert_eq!((heap.status, Profile::read(&heap.body).period), (200, 2 << 20));
        // Without a network, the router's unit test covers remote clients.
        if let Some(remote_address) = remote_address(telemetry.port()) {
            assert_eq!(get(remote_address, "/metrics").status, 200);
            for path in ["heap", "heap?keep=mine", "heap_flamegraph?base=before"] {
                let answer = get(remote_address, &format!("/debug/pprof/{path}"));
                assert_eq!(answer.status, status, "{flag}: {}", answer.text());
            }
        }
    }
}

/// Whether a scrape configuration fetches a profile, and from where.
#[derive(Debug)]
struct Fetch {
    enabled: bool,
    delta: bool,
    path: Option<String>,
}

/// The profiles that a configuration names, by name.
type Fetches = HashMap<String, Fetch>;

/// Each job of `deploy/profiling/parca.yaml`.
fn parca() -> Vec<Fetches> {
    let text = include_str!("../deploy/profiling/parca.yaml");
    let config: serde_json::Value = serde_saphyr::from_str(text).expect("YAML");
    let jobs = config["scrape_configs"].as_array().expect("jobs").iter();
    let fetch = |profile: &serde_json::Value| Fetch {
        enabled: profile["enabled"].as_bool().expect("enabled"),
        delta: profile["delta"].as_bool().unwrap_or_default(),
        path: profile["path"].as_str().map(str::to_owned),
    };
    let fetches = |job: &serde_json::Value| {
        let profiles = job["profiling_config"]["pprof_config"].as_object().expect("profiles");
        profiles.iter().map(|(name, profile)| (name.clone(), fetch(profile))).collect()
    };
    jobs.map(fetches).collect()
}

/// The `profile.NAME` blocks of `deploy/profiling/pyroscope.alloy`.
fn pyroscope() -> Fetches {
    let text = include_str!("../deploy/profiling/pyroscope.alloy");
    let depth = |sign: char| text.lines().filter(|line| line.trim_end().ends_with(sign)).count();
    assert_eq!(depth('{'), depth('}'), "every block is closed");
    let blocks = text.split("    profile.").skip(1);
    let block = |block: &str| {
        let (name, rest) = block.split_once(" {").expect("a block");
        let body = rest.split_once('}').expect("its end").0;
        let value = |key: &str| {
            let mut pairs = body.lines().filter_map(|line| line.split_once('='));
            pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
        };
        let is_true = |key: &str| value(key).as_deref() == Some("true");
        let path = value("path").map(|path| path.trim_matches('"').to_owned());
        (name.to_owned(), Fetch { enabled: is_true("enabled"), delta: is_true("delta"), path })
    };
    blocks.map(block).collect()
}

/// What Parca and Pyroscope fetch with the configurations in `deploy/profiling` is what they expect, twice in a row.
#[test]
fn continuous_profilers_get_what_their_configurations_fetch() {
    let exporter = Exporter::with_series(ENOUGH_SERIES);
    let configurations: Vec<Fetches> = parca().into_iter().chain([pyroscope()]).collect();
    assert_eq!(configurations.len(), 3);
    for fetches in configurations {
        let mut names: Vec<_> = fetches.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["block", "goroutine", "memory", "mutex", "process_cpu"]);
        for (name, fetch) in &fetches {
            // On by default in Parca, and without meaning here.
            if !fetch.enabled {
                let answer = get(exporter.web, &format!("/debug/pprof/{name}"));
                assert!(!answer.body.starts_with(&[0x1f, 0x8b]), "{name} is a profile");
                continue;
            }
            let path = fetch.path.as_deref().expect("a path");
            let path = path.strip_prefix("/debug/pprof/").expect("a profile");
            let (query, kinds) = match fetch.delta {
                true => ("?seconds=1", [("samples", "count"), ("cpu", "nanoseconds")]),
                false => ("", [("inuse_objects", "count"), ("inuse_space", "bytes")]),
            };
            for _ in 0..2 {
                let (bytes, _) = exporter.fetch(&format!("{path}{query}"));
                assert!(bytes.starts_with(&[0x1f, 0x8b]), "{name}");
                let profile = Profile::read(&bytes);
                assert_eq!(profile.kinds()[..2], kinds);
                // Names are in the profile, because there are no debug symbols to upload.
                assert!(fetch.delta || profile.mapping.iter().any(|mapping| mapping.has_functions));
                let seconds = profile.duration_nanos as f64 / 1e9;
                assert!(if fetch.delta { (1.0..60.0).contains(&seconds) } else { seconds == 0.0 });
                let allowed = if fetch.delta { &["thread"][..] } else { &[] };
                let mut labels = profile.sample.iter().flat_map(|sample| profile.labels(sample));
                assert!(labels.all(|(key, _)| allowed.contains(&key)), "{name}");
            }
        }
    }
}
