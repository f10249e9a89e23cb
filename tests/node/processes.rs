//! Processes and pressure, read from a fake `/proc` that a test changes, and from the real one.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Instant;

use flate2::read::GzDecoder;

use super::common::{self, get, replace, request, until, valid_text};
use super::{Node, Series};

/// A fake `/proc`.
struct Proc(tempfile::TempDir);

/// The figures of a fake process with one thread.
#[derive(Clone, Copy, Default)]
struct Figures {
    start: u64,
    cpu: u64,
    read: u64,
    written: u64,
    wakeups: u64,
    preempted: u64,
}

impl Proc {
    /// A host with its kernel thread, up for 1,000 seconds.
    fn new() -> Self {
        let proc = Self(tempfile::tempdir().expect("a directory"));
        proc.set_uptime(1000);
        proc.put(2, "kthreadd", Figures::default());
        proc.set_pressure("cpu", 1_500_000, 0);
        proc
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        replace(&path, text);
    }

    fn set_uptime(&self, seconds: u64) {
        self.write("uptime", &format!("{seconds}.00 5.00\n"));
    }

    fn set_pressure(&self, resource: &str, some: u64, full: u64) {
        let line = |key, total| format!("{key} avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n");
        let text = line("some", some) + &line("full", full);
        self.write(&format!("pressure/{resource}"), &text);
    }

    /// Creates or updates a process.
    fn put(&self, pid: u32, comm: &str, of: Figures) {
        let Figures { start, cpu, read, written, wakeups, preempted } = of;
        self.write(&format!("{pid}/comm"), &format!("{comm}\n"));
        self.write(
            &format!("{pid}/stat"),
            &format!("{pid} ({comm}) S 1 1 1 0 -1 0 0 0 0 0 {cpu} 0 0 0 20 0 3 0 {start} 1 1\n"),
        );
        let io = format!("rchar: 1\nread_bytes: {read}\nwrite_bytes: {written}\n");
        self.write(&format!("{pid}/io"), &io);
        self.put_thread(pid, pid, wakeups, preempted);
    }

    fn put_thread(&self, pid: u32, thread: u32, wakeups: u64, preempted: u64) {
        self.write(
            &format!("{pid}/task/{thread}/status"),
            &format!(
                "Name:\tx\nVmRSS:\t    2048 kB\nvoluntary_ctxt_switches:\t{wakeups}\n\
                 nonvoluntary_ctxt_switches:\t{preempted}\n"
            ),
        );
    }

    fn end_thread(&self, pid: u32, thread: u32) {
        fs::remove_dir_all(self.path(&format!("{pid}/task/{thread}"))).expect("a thread");
    }

    fn end(&self, pid: u32) {
        fs::remove_dir_all(self.path(&pid.to_string())).expect("a process");
    }

    fn start(&self, args: &[&str]) -> Node {
        let own = [format!("--host-proc={}", self.0.path().display()), "--kubelet=".to_owned()];
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        Node::start(&[&own[..], args].concat())
    }
}

/// The value of a family of processes.
fn of(series: &Series, family: &str, name: &str) -> Option<f64> {
    series.get(&format!("kstatd_node_{family}"), &[("name", name)])
}

fn cpu(series: &Series, name: &str) -> Option<f64> {
    of(series, "process_cpu_seconds_total", name)
}

const LARGE: Figures =
    Figures { start: 500, cpu: 10_000, read: 1 << 20, written: 1 << 30, wakeups: 77, preempted: 5 };

#[test]
fn usage_counts_from_the_start_of_kstatd() {
    let proc = Proc::new();
    proc.put(10, "kubelet", LARGE);
    let node = proc.start(&[]);
    let before = node.shows("the first figures", |shown| cpu(shown, "kubelet").is_some());
    for (family, want) in [
        ("process_cpu_seconds_total", 0.0),
        ("process_read_bytes_total", 0.0),
        ("process_written_bytes_total", 0.0),
        ("process_context_switches_total", 0.0),
        ("process_wakeups_total", 0.0),
        ("process_threads", 3.0),
        ("process_resident_memory_bytes", 2_097_152.0),
        ("processes", 1.0),
    ] {
        assert_eq!(of(&before, family, "kubelet"), Some(want), "{family}");
    }
    proc.put(
        10,
        "kubelet",
        Figures {
            start: 500,
            cpu: 10_250,
            read: (1 << 20) + 4096,
            written: (1 << 30) + 8192,
            wakeups: 100,
            preempted: 7,
        },
    );
    // A thread that started since counts in full.
    proc.put_thread(10, 11, 1000, 500);
    let shown = node.shows("the increments", |shown| {
        of(shown, "process_context_switches_total", "kubelet") == Some(1525.0)
    });
    for (family, want) in [
        ("process_cpu_seconds_total", 2.5),
        ("process_read_bytes_total", 4096.0),
        ("process_written_bytes_total", 8192.0),
        ("process_wakeups_total", 1023.0),
    ] {
        assert_eq!(of(&shown, family, "kubelet"), Some(want), "{family}");
    }
    // A thread that one reading overlooks does not count in full again.
    proc.end_thread(10, 11);
    proc.write("10/stat", "10 (kubelet) S 1 1 1 0 -1 0 0 0 0 0 10300 0 0 0 20 0 3 0 500 1 1\n");
    node.shows("a reading without it", |shown| cpu(shown, "kubelet") == Some(3.0));
    proc.put_thread(10, 11, 1003, 500);
    let shown = node.shows("a reading with it", |shown| {
        of(shown, "process_context_switches_total", "kubelet") != Some(1525.0)
    });
    assert_eq!(of(&shown, "process_context_switches_total", "kubelet"), Some(1528.0));
    // Other names, and names never seen, have no series.
    assert_eq!((cpu(&shown, "kthreadd"), cpu(&shown, "crio")), (None, None));
}

#[test]
fn a_sum_never_goes_back_when_processes_restart_or_an_id_is_reused() {
    let proc = Proc::new();
    proc.put(10, "kubelet", LARGE);
    proc.put(20, "kubelet", LARGE);
    let node = proc.start(&[]);
    let mut last = 0.0;
    let mut reaches = |want: f64| {
        node.shows(&format!("{want} s"), |shown| {
            let now = cpu(shown, "kubelet").expect("a sum");
            assert!(now >= last, "{now} after {last}");
            last = now;
            now == want
        })
    };
    proc.put(10, "kubelet", Figures { cpu: 10_100, ..LARGE });
    reaches(1.0);
    // One ends; a new one starts with another ID, and counts from its start.
    proc.end(10);
    proc.set_uptime(1010);
    proc.put(30, "kubelet", Figures { start: 100_500, cpu: 30, ..Figures::default() });
    reaches(1.3);
    // The ID is reused by a process with the same name and larger counters than before.
    proc.set_uptime(1020);
    let reused = Figures { start: 101_100, cpu: 40, written: 1 << 40, ..Figures::default() };
    proc.put(30, "kubelet", reused);
    let shown = reaches(1.7);
    assert_eq!(of(&shown, "process_written_bytes_total", "kubelet"), Some((1_u64 << 40) as f64));
    // It is reused by another program, whose usage does not count.
    proc.put(30, "hog", Figures { start: 101_900, cpu: 999_999, ..Figures::default() });
    node.shows("one process", |shown| of(shown, "processes", "kubelet") == Some(1.0));
    reaches(1.7);
    // Old processes that take the name count from then on only.
    proc.put(40, "kubelet", Figures { cpu: 50_000, ..LARGE });
    proc.put(41, "kubelet", LARGE);
    proc.end(20);
    node.shows("the processes with the new name", |shown| {
        assert_eq!(cpu(shown, "kubelet"), Some(1.7));
        of(shown, "processes", "kubelet") == Some(2.0)
    });
    proc.put(40, "kubelet", Figures { cpu: 50_010, ..LARGE });
    reaches(1.8);
    // Without any process the counters stay, and the gauges are absent.
    proc.end(40);
    proc.end(41);
    let shown = node.shows("none", |shown| of(shown, "processes", "kubelet") == Some(0.0));
    assert_eq!(cpu(&shown, "kubelet"), Some(1.8));
    assert_eq!(of(&shown, "process_threads", "kubelet"), None);
    assert_eq!(of(&shown, "process_resident_memory_bytes", "kubelet"), None);
}

#[test]
fn refused_disk_bytes_are_absent_and_named_once() {
    let proc = Proc::new();
    proc.put(10, "kubelet", LARGE);
    proc.put(11, "kstatd", LARGE);
    fs::remove_file(proc.path("10/io")).expect("a file");
    let node = proc.start(&[]);
    let readings = || node.own().get("kstatd_node_proc_readings_total", &[]);
    until("several readings", || {
        let shown = Series::of(&node.scrape());
        assert_eq!(of(&shown, "process_read_bytes_total", "kubelet"), None);
        assert_eq!(of(&shown, "process_written_bytes_total", "kubelet"), None);
        assert_eq!(of(&shown, "process_written_bytes_total", "kstatd"), Some(0.0));
        assert!(cpu(&shown, "kubelet").is_some());
        readings().filter(|count| *count >= 4.0)
    });
    let lines = node.program.log();
    let lines: Vec<_> = lines.iter().filter(|line| line.contains("CAP_SYS_PTRACE")).collect();
    assert!(lines.len() == 1 && lines[0].contains("kubelet"), "{lines:?}");
    assert!(!lines[0].contains("kstatd,"), "{lines:?}");
    let unreadable =
        |file| node.own().get("kstatd_node_proc_unreadable_processes", &[("file", file)]);
    assert_eq!((unreadable("io"), unreadable("stat")), (Some(1.0), Some(0.0)));
    let status = get(node.main, "/status?format=text").text();
    assert!(status.contains("CAP_SYS_PTRACE") && status.starts_with("OK"), "{status}");
    proc.put(10, "kubelet", LARGE);
    node.shows("disk bytes", |shown| {
        of(shown, "process_written_bytes_total", "kubelet") == Some(0.0)
    });
    assert_eq!(unreadable("io"), Some(0.0));
    assert!(!get(node.main, "/status?format=text").text().contains("CAP_SYS_PTRACE"));
}

#[test]
fn pressure_is_in_seconds_and_absent_without_psi() {
    let proc = Proc::new();
    proc.set_pressure("io", 2_000_001, 1_000_000);
    proc.write("pressure/irq", "full avg10=0.00 avg60=0.00 avg300=0.00 total=7000000\n");
    proc.write("pressure/memory", "garbage\n");
    let node = proc.start(&["--processes=none-of-them"]);
    let pressure = |shown: &Series, kind: &str, resource| {
        let family = format!("kstatd_node_pressure_{kind}_seconds_total");
        shown.get(&family, &[("resource", resource)])
    };
    let shown = node.shows("pressure", |shown| pressure(shown, "some", "cpu").is_some());
    for (kind, resource, want) in [
        ("some", "cpu", Some(1.5)),
        ("full", "cpu", Some(0.0)),
        ("some", "io", Some(2.000_001)),
        ("full", "io", Some(1.0)),
        ("some", "irq", None),
        ("full", "irq", Some(7.0)),
        ("some", "memory", None),
    ] {
        assert_eq!(pressure(&shown, kind, resource), want, "{kind} {resource}");
    }
    fs::remove_dir_all(proc.path("pressure")).expect("files");
    node.shows("no pressure", |shown| pressure(shown, "some", "cpu").is_none());
    node.program.line(&["no figures of pressure", "psi=1"]);
    assert!(!node.scrape().contains("kstatd_node_pressure"));
    proc.set_pressure("cpu", 3_000_000, 0);
    node.shows("pressure again", |shown| pressure(shown, "some", "cpu") == Some(3.0));
}

#[test]
fn names_are_reloaded_and_those_that_stay_keep_their_sums() {
    let proc = Proc::new();
    proc.put(10, "kubelet", LARGE);
    proc.put(11, "postgres", LARGE);
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), "processes: [kubelet]\n").expect("written");
    let config = format!("--config={}", file.path().display());
    let node = proc.start(&[&config, "--processes=postgres"]);
    node.shows("kubelet alone", |shown| {
        assert_eq!(cpu(shown, "postgres"), None);
        cpu(shown, "kubelet").is_some()
    });
    proc.put(10, "kubelet", Figures { cpu: 10_100, ..LARGE });
    node.shows("a sum", |shown| cpu(shown, "kubelet") == Some(1.0));
    replace(file.path(), "processes:\n- kubelet\n- postgres\n");
    let shown = node.shows("both", |shown| cpu(shown, "postgres").is_some());
    assert_eq!((cpu(&shown, "kubelet"), cpu(&shown, "postgres")), (Some(1.0), Some(0.0)));
    // Files that cannot be used change nothing, and are named.
    for (text, part) in [
        ("processes: [a/b]\n", "a/b"),
        ("processes: {a: b}\n", "a list"),
        ("proceses: []\n", "unknown key"),
        ("processes: []\n", "cannot be enabled or disabled at run time"),
    ] {
        replace(file.path(), text);
        until(text, || {
            let status = get(node.main, "/status?format=text").text();
            (status.starts_with("DEGRADED") && status.contains(part)).then_some(())
        });
        assert_eq!(cpu(&Series::of(&node.scrape()), "postgres"), Some(0.0), "{text}");
    }
    replace(file.path(), "processes: [postgres]\n");
    let shown = node.shows("postgres alone", |shown| cpu(shown, "kubelet").is_none());
    assert_eq!(cpu(&shown, "postgres"), Some(0.0));
    until("OK", || get(node.main, "/status?format=text").text().starts_with("OK").then_some(()));
}

#[test]
fn unusable_names_are_errors_at_the_start() {
    for (flag, part) in [
        ("--processes=a/b", "a/b"),
        ("--processes=containerd-shim-a,containerd-shim-b", "first 15 bytes"),
        ("--config=/no/such/file", "/no/such/file"),
    ] {
        let output = common::run("kstatd", ["node", "--listen=:0", "--telemetry-listen=:0", flag]);
        assert!(!output.status.success(), "{flag}");
        assert!(output.stderr.contains(part), "{flag}: {}", output.stderr);
    }
}

#[test]
fn every_form_of_a_scrape_has_the_same_figures() {
    let proc = Proc::new();
    proc.put(10, "kubelet", LARGE);
    let node = proc.start(&[]);
    let text = node.scrape();
    let packed = request(node.main, "GET", "/metrics", &[("Accept-Encoding", "gzip")]);
    let packed = packed.expect("an answer");
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let mut unpacked = String::new();
    GzDecoder::new(&packed.body[..]).read_to_string(&mut unpacked).expect("gzip");
    assert_eq!(unpacked, text);
    let accept = ("Accept", "application/openmetrics-text; version=1.0.0");
    let open = request(node.main, "GET", "/metrics", &[accept]).expect("an answer").text();
    assert!(open.contains("# TYPE kstatd_node_process_cpu_seconds counter\n"), "{open}");
    assert!(open.contains("kstatd_node_process_cpu_seconds_total{name=\"kubelet\"} "), "{open}");
    assert!(open.contains("# TYPE kstatd_node_processes gauge\n") && open.ends_with("# EOF\n"));
    let one = get(node.main, "/metrics?name[]=kstatd_node_processes").text();
    let lines: Vec<_> = one.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, ["kstatd_node_processes{name=\"kubelet\"} 1"]);
    // A part of a cluster's namespaces has nothing of the host.
    assert_eq!(get(node.main, "/metrics?namespace=shop").text(), "");
    let main = get(node.main, "/metrics/node").text();
    assert_eq!(main, text);
}

#[test]
fn of_many_processes_with_one_name_the_oldest_count() {
    let proc = Proc::new();
    for pid in 100..200_u32 {
        // Of this hundred, those with the larger IDs are older.
        let start = 1000 - u64::from(pid);
        proc.put(pid, "kubelet", Figures { start, ..Figures::default() });
    }
    let node = proc.start(&[]);
    let shown = node.shows("processes", |shown| of(shown, "processes", "kubelet").is_some());
    assert_eq!(of(&shown, "processes", "kubelet"), Some(64.0));
    assert_eq!(node.own().get("kstatd_node_proc_skipped_processes", &[]), Some(36.0));
    node.program.line(&["only the 64 oldest processes", "kubelet"]);
    for (pid, sum) in [(100, 0.0), (135, 0.0), (136, 1.0), (199, 2.0)] {
        let start = 1000 - u64::from(pid);
        proc.put(pid, "kubelet", Figures { start, cpu: 100, ..Figures::default() });
        node.shows(&format!("process {pid}"), |shown| cpu(shown, "kubelet") == Some(sum));
    }
    let series = valid_text(&node.scrape()).len();
    assert!(series < 20, "{series} series");
}

#[test]
fn hostile_names_and_garbage_break_nothing() {
    let proc = Proc::new();
    let quoted = r#"ku"be\let"#;
    proc.put(10, "kubelet", LARGE);
    proc.put(11, quoted, LARGE);
    // Names that any process can choose.
    for (pid, comm) in [
        (12, "kubelet\n"),
        (13, "a) S 1 1 1 1 1"),
        (14, "{name=\"kubelet"),
        (15, ""),
        (16, "\u{202e}kubelet"),
    ] {
        proc.put(pid, comm, LARGE);
    }
    fs::write(proc.path("16/comm"), b"\xff\xfe\n").expect("written");
    proc.write("99999999999999999999/comm", "kubelet\n");
    proc.write("17", "a file, no process");
    proc.write("18/comm", "kubelet\n");
    let node = proc.start(&[&format!("--processes=kubelet,{quoted}")]);
    let shown = node.shows("two names", |shown| cpu(shown, r#"ku\"be\\let"#).is_some());
    assert_eq!(of(&shown, "processes", "kubelet"), Some(1.0));
    // Garbage keeps the last figures, and counters stay where they are.
    let files = ["stat", "io", "task/10/status"];
    for text in ["", "garbage", "10 (kubelet) S 1 2\n", "10 (kubelet) S -1\u{0}\u{0} \n"] {
        for file in files {
            proc.write(&format!("10/{file}"), text);
        }
        proc.write("uptime", text);
        until("a reading of garbage", || {
            let shown = Series::of(&node.scrape());
            assert_eq!(cpu(&shown, "kubelet"), Some(0.0), "{text:?}");
            assert_eq!(of(&shown, "processes", "kubelet"), Some(1.0), "{text:?}");
            let labels = [("file", "stat")];
            node.own()
                .get("kstatd_node_proc_unreadable_processes", &labels)
                .filter(|count| *count == 1.0)
        });
    }
    proc.put(10, "kubelet", Figures { cpu: 10_200, ..LARGE });
    node.shows("figures again", |shown| cpu(shown, "kubelet") == Some(2.0));
    // A file that is too long is not read to its end.
    proc.write("10/stat", &"x".repeat(1 << 20));
    until("a long file", || {
        node.scrape();
        let labels = [("file", "stat")];
        let unreadable = node.own().get("kstatd_node_proc_unreadable_processes", &labels);
        (unreadable == Some(1.0)).then_some(())
    });
}

#[test]
fn without_proc_the_figures_are_absent_and_come_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("proc");
    let flag = format!("--host-proc={}", path.display());
    let node = Node::start(&["--kubelet=", &flag]);
    assert_eq!(node.scrape(), "");
    node.program.line(&["no figures of processes and pressure", "cannot read"]);
    let proc = Proc::new();
    proc.put(10, "kubelet", LARGE);
    symlink(proc.0.path(), &path).expect("a link");
    // Links are not followed, so nothing else can take the place of /proc.
    assert_eq!(node.scrape(), "");
    fs::remove_file(&path).expect("removed");
    fs::rename(proc.0.path(), &path).expect("moved");
    node.shows("figures", |shown| cpu(shown, "kubelet") == Some(0.0));
    fs::rename(&path, proc.0.path()).expect("moved back");
    node.shows("no figures", |shown| of(shown, "process_threads", "kubelet").is_none());
}

#[test]
fn the_own_proc_of_a_container_is_noted() {
    let proc = Proc::new();
    proc.end(2);
    proc.put(1, "kstatd", LARGE);
    let node = proc.start(&[]);
    node.program.line(&["INFO", "only the processes of this container", "--host-proc"]);
    node.shows("the process in the container", |shown| cpu(shown, "kstatd").is_some());
}

#[test]
fn readings_take_at_most_a_thousandth_of_a_core() {
    let proc = Proc::new();
    (100..160).for_each(|pid| proc.put(pid, "kubelet", LARGE));
    (200..600).for_each(|pid| proc.put(pid, "other", LARGE));
    let node = proc.start(&[]);
    let own = || {
        let own = node.own();
        let get = |family: &str| own.get(&format!("kstatd_node_proc_{family}"), &[]);
        (get("readings_total").expect("readings"), get("reading_cpu_seconds_total").expect("CPU"))
    };
    let (first, initial) = own();
    let begun = Instant::now();
    let (_, spent) = until("two more readings", || {
        node.scrape();
        Some(own()).filter(|(readings, _)| *readings >= first + 2.0)
    });
    // The first reading with its scan is paid for afterwards.
    let bound = 0.001 * begun.elapsed().as_secs_f64() + initial;
    assert!(spent - initial <= bound, "{spent} s, {initial} s at the start, {bound} s allowed");
}

/// A shell with another name, which works when it is told to.
struct Planted {
    child: Child,
    input: ChildStdin,
    _dir: tempfile::TempDir,
    file: PathBuf,
}

const PLANTED: &str = "planted-load";

impl Planted {
    fn start() -> Self {
        // The target directory is on a disk, which temporary directories need not be.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let program = dir.path().join(PLANTED);
        symlink("/bin/sh", &program).expect("a link");
        let file = dir.path().join("written");
        let script = "while read count; do i=0; \
                      while [ $i -lt $count ]; do i=$((i+1)); printf '%65536d' $i; done; done";
        let mut child = Command::new(program)
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(fs::File::create(&file).expect("a file"))
            .spawn()
            .expect("a shell");
        let input = child.stdin.take().expect("stdin");
        Self { child, input, _dir: dir, file }
    }

    /// Lets it write so many times 64 KiB, and waits until it is idle.
    fn work(&mut self, count: u64) {
        let want = self.file.metadata().expect("a file").len() + count * 65536;
        writeln!(self.input, "{count}").expect("told");
        until("it has written", || {
            let length = self.file.metadata().expect("a file").len();
            (length == want && self.is_asleep()).then_some(())
        });
    }

    fn proc(&self, file: &str) -> String {
        let path = format!("/proc/{}/{file}", self.child.id());
        fs::read_to_string(Path::new(&path)).expect(&path)
    }

    fn is_asleep(&self) -> bool {
        self.proc("stat").rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    }

    /// CPU in seconds, bytes written, and context switches, as the kernel reports them.
    fn figures(&self) -> [f64; 3] {
        let stat = self.proc("stat");
        let ticks = stat.rsplit_once(')').expect("a name").1.split_whitespace().skip(11).take(2);
        let ticks: f64 = ticks.map(|field| field.parse::<f64>().expect("ticks")).sum();
        let sum = |text: &str, keys: &[&str]| -> f64 {
            let values = text.lines().filter_map(|line| line.split_once(':'));
            let values = values.filter(|(key, _)| keys.contains(key));
            values.map(|(_, value)| value.trim().parse::<f64>().expect("a number")).sum()
        };
        let switches = ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"];
        [
            ticks / 100.0,
            sum(&self.proc("io"), &["write_bytes"]),
            sum(&self.proc("status"), &switches),
        ]
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_planted_load_is_what_the_kernel_reports() {
    let mut planted = Planted::start();
    planted.work(1);
    let before = planted.figures();
    let node = Node::start(&["--kubelet=", &format!("--processes={PLANTED}")]);
    node.shows("the process", |shown| cpu(shown, PLANTED) == Some(0.0));
    for _ in 0..2 {
        planted.work(600);
    }
    let after = planted.figures();
    let want: Vec<f64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    assert!(want[0] > 0.0, "it used no CPU: {after:?}");
    let families = [
        "process_cpu_seconds_total",
        "process_written_bytes_total",
        "process_context_switches_total",
    ];
    let mut seen = Vec::new();
    node.shows("the same", |shown| {
        seen = families.map(|family| of(shown, family, PLANTED).expect(family)).to_vec();
        seen.iter().zip(&want).all(|(seen, want)| (seen - want).abs() < 1e-6)
    });
    // Where the file system counts writes at all, these are the bytes that were written.
    let written = 2.0 * 600.0 * 65536.0;
    assert!(seen[1] == 0.0 || (written..1.1 * written).contains(&seen[1]), "{seen:?}");
    assert_eq!(of(&Series::of(&node.scrape()), "process_threads", PLANTED), Some(1.0));
}
