//! `/debug/pprof/` from outside: what `go tool pprof` reads, who gets it, and what it leaves behind.

mod common;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;

use common::{DEADLINE, Program, get, until};
use prost::Message;

/// What is read of `perftools.profiles.Profile`.
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

    /// The names of each sample's functions, the innermost first; empty where there is none.
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

    /// That every address lies in its mapping, and that the program's comes first and has names.
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

/// As many series as fill a heap of which some thirty pieces are noted: of each 512 KiB
/// that is allocated one is, by chance.
const ENOUGH: usize = 100_000;

struct Exporter {
    program: Program,
    web: SocketAddr,
}

impl Exporter {
    /// Started where nothing can be written to a temporary folder, and given so many series.
    fn with_series(count: usize) -> Self {
        let flags = [
            "--web.listen-address=127.0.0.1:0",
            "--statsd.listen-udp=",
            "--statsd.listen-tcp=127.0.0.1:0",
        ];
        let mut command = common::command("statsd_exporter", flags);
        command.env("TMPDIR", "/nonexistent").stdin(Stdio::null());
        let program = Program::spawn(&mut command);
        let tcp = program.address(&["Accepting StatsD Traffic"], "tcp");
        let web = program.address(&["Accepting Prometheus Requests"], "addr");
        let mut stream = TcpStream::connect(tcp).expect("connect");
        let lines: String = (0..count)
            .map(|index| format!("requests_of_some_service_{index}.with_a_long_name:1|c\n"))
            .collect();
        stream.write_all(lines.as_bytes()).expect("lines");
        drop(stream);
        let exporter = Self { program, web };
        let counted = format!("statsd_exporter_lines_total {count}\n");
        until("all lines are counted", || {
            get(web, "/metrics?name[]=statsd_exporter_lines_total")
                .text()
                .contains(&counted)
                .then_some(())
        });
        exporter
    }

    /// Begins a request whose answer nobody reads.
    fn begin(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.web).expect("connect");
        stream.set_read_timeout(Some(DEADLINE)).expect("timeout");
        write!(stream, "GET /debug/pprof/{path} HTTP/1.1\r\nHost: test\r\n\r\n").expect("request");
        stream
    }

    fn profile(&self, path: &str) -> Profile {
        let answer = get(self.web, &format!("/debug/pprof/{path}"));
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        Profile::read(&answer.body)
    }

    /// Bytes in RAM.
    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.program.id()));
        let status = status.expect("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        let kilobytes = line.trim().strip_suffix(" kB").expect("kB");
        kilobytes.parse::<u64>().expect("number") * 1024
    }
}

/// What no reader of a heap profile asks about.
fn is_allocator(name: &str) -> bool {
    let name = name.trim_start_matches('<');
    ["_rjem_", "__rust", "alloc::", "prof_", "imalloc", "do_"]
        .iter()
        .any(|part| name.starts_with(part))
}

#[test]
fn the_first_heap_profile_shows_what_lives() {
    let exporter = Exporter::with_series(ENOUGH);
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
fn the_first_heap_flame_graph_is_a_picture() {
    let exporter = Exporter::with_series(ENOUGH);
    let answer = get(exporter.web, "/debug/pprof/heap_flamegraph");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("image/svg+xml")));
    let text = answer.text();
    assert!(text.contains("<svg") && text.contains("kstatd::statsd::"), "{text}");
    let about = [" stacks, ", " objects, ", concat!("; kstatd ", env!("CARGO_PKG_VERSION"))];
    assert!(about.iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn a_flame_graph_says_how_long_was_watched_and_how_busy_it_was() {
    let exporter = Exporter::with_series(10);
    let text = get(exporter.web, "/debug/pprof/flamegraph?seconds=1").text();
    let version = concat!("Idle time is not drawn; kstatd ", env!("CARGO_PKG_VERSION"));
    for part in ["CPU time", " s watched, ", " samples, ", "% of one core. ", version] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn what_changed_in_the_heap() {
    let exporter = Exporter::with_series(ENOUGH);
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
    // The stacks reach from the work to the thread's begin.
    assert!(stacks.iter().any(|stack| stack.len() > 8), "{stacks:?}");
}

#[test]
fn one_profile_at_a_time_until_its_client_leaves() {
    let exporter = Exporter::with_series(10);
    for (long, short) in [
        ("profile?seconds=600", "profile?seconds=1"),
        ("flamegraph?seconds=600", "flamegraph?seconds=1"),
        ("heap?seconds=600", "heap"),
        ("allocs?seconds=600", "heap_flamegraph"),
    ] {
        let ask = || get(exporter.web, &format!("/debug/pprof/{short}"));
        let (first, refusal) = until("the second is refused", || {
            // Whichever comes first runs: until it is the long one.
            let first = exporter.begin(long);
            let answer = ask();
            (answer.status != 200).then_some((first, answer))
        });
        assert_eq!(refusal.status, 429, "{short}");
        assert!(refusal.text().contains("one at a time"), "{}", refusal.text());
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
fn profiles_leave_no_memory_behind() {
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

/// What has no meaning here says so to people and to tools.
#[test]
fn profiles_of_a_runtime_that_is_not_there_say_why() {
    let exporter = Exporter::with_series(1);
    for (profile, part) in
        [("trace", "no Go runtime"), ("block", "waits for another"), ("mutex", "lock")]
    {
        for query in ["", "?debug=1", "?seconds=1"] {
            let answer = get(exporter.web, &format!("/debug/pprof/{profile}{query}"));
            assert_eq!((answer.status, answer.header("x-go-pprof")), (404, Some("1")), "{profile}");
            assert!(answer.text().contains(part), "{profile}: {}", answer.text());
        }
    }
    assert_eq!(get(exporter.web, "/debug/pprof/nonsense").text(), "Unknown profile\n");
}

/// The page for people has links to all there is, and each of them works.
#[test]
fn the_index_leads_to_every_profile() {
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

/// Addresses of a profile have the names there that the profile gives them.
#[test]
fn symbols_are_looked_up_by_address() {
    let exporter = Exporter::with_series(ENOUGH);
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
    // Under this name, as the original.
    let posted = common::request(exporter.web, "POST", "/debug/pprof/symbol", &[]);
    assert_eq!(posted.expect("an answer").status, 404);
}

/// An address of this host at which it is not known as this host, if it has one.
fn outside(port: u16) -> Option<SocketAddr> {
    // Nothing is sent: it is only asked which way it would go.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("198.51.100.1:9").ok()?;
    Some(SocketAddr::new(socket.local_addr().ok()?.ip(), port))
}

/// What `kstatd run` keeps from those who come over the network, unless it is told otherwise.
#[test]
fn strangers_get_profiles_only_if_everybody_does() {
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
        assert_eq!(get(here, "/debug/pprof/heap").status, 200);
        // Where there is no network, what the router does with strangers is seen in its own test.
        if let Some(outside) = outside(telemetry.port()) {
            assert_eq!(get(outside, "/metrics").status, 200);
            let answer = get(outside, "/debug/pprof/heap");
            assert_eq!(answer.status, status, "{flag}: {}", answer.text());
        }
    }
}
