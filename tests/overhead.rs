//! `kstatd overhead`, tested with processes of known behaviour.

mod common;

use std::fs;
use std::process::{Child, Command, Stdio};

use common::run;

/// A process that ends with the test.
struct Shell(Child);

impl Shell {
    fn run(script: &str) -> Self {
        let mut command = Command::new("sh");
        Self(command.args(["-c", script]).stdout(Stdio::null()).spawn().expect("a shell"))
    }

    /// Waits until the process sleeps in `program`: until then it costs CPU to start.
    fn sleeps_in(self, program: &str) -> Self {
        let file = format!("/proc/{}/stat", self.0.id());
        common::until("it sleeps", || {
            let stat = fs::read_to_string(&file).expect("stat");
            stat.contains(&format!(" ({program}) S ")).then_some(())
        });
        self
    }

    fn flag(&self) -> String {
        format!("--pid={}", self.0.id())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const SHORT: [&str; 3] = ["overhead", "--every=20ms", "--for=400ms"];

/// Returns the columns of a table row, which are separated by at least two spaces.
fn row<'a>(table: &'a str, name: &str) -> Vec<&'a str> {
    let line = table.lines().find(|line| line.trim_start().starts_with(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in {table}"));
    line.split("  ").map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
}

#[test]
fn busy_and_idle_processes_are_distinguished() {
    let dir = tempfile::tempdir().expect("a directory");
    let idle = Shell::run("exec sleep 1000").sleeps_in("sleep");
    let busy = Shell::run("while :; do :; done");
    let file = dir.path().join("idle.json");
    let (save, baseline) =
        (format!("--save={}", file.display()), format!("--baseline={}", file.display()));
    let flag = idle.flag();
    let output = run("kstatd", SHORT.iter().copied().chain([flag.as_str(), &save]));
    assert!(output.status.success(), "{}", output.stderr);
    assert!(output.stdout.starts_with("20 samples, one every 0.02 s\n"), "{}", output.stdout);
    assert_eq!(row(&output.stdout, "CPU, %")[1..], ["0.000", "0.000", "0.000"]);
    assert_eq!(row(&output.stdout, "wake-ups/s")[1..], ["0.0", "0.0", "0.0"]);
    assert!(number(row(&output.stdout, "memory, MB")[2]) > 0.1);
    assert_eq!(row(&output.stdout, "host: CPU busy").len(), 4);
    // A repeated measurement is not significant, however busy the host is.
    let output = run("kstatd", SHORT.iter().copied().chain([flag.as_str(), &baseline]));
    let same = row(&output.stdout, "CPU, %");
    assert_eq!(same[4..], ["0.000", "+0.000", "1.000000", "not significant"], "{}", output.stdout);
    let flag = busy.flag();
    let output = run("kstatd", SHORT.iter().copied().chain([flag.as_str(), &baseline]));
    let more = row(&output.stdout, "CPU, %");
    assert!(number(more[2]) > 1.0, "{}", output.stdout);
    assert_eq!(more[7], "significant", "{}", output.stdout);
}

#[test]
fn processes_are_selected_by_name_and_cgroup() {
    let name = "kstatd-double-x";
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join(name);
    // A copied file could still be open for writing in a child that another test has just forked.
    std::os::unix::fs::symlink("/bin/sleep", &program).expect("a link");
    let mut child = Command::new(&program).arg("1000").spawn().expect("start");
    let comm = format!("--comm={name}");
    common::until("it has its name", || {
        let comm = fs::read_to_string(format!("/proc/{}/comm", child.id())).expect("comm");
        (comm.trim_end() == name).then_some(())
    });
    let output = run("kstatd", SHORT.iter().copied().chain([comm.as_str(), "--json"]));
    assert!(output.status.success(), "{}", output.stderr);
    let samples: serde_json::Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(samples["rows"][2][1].as_array().map(Vec::len), Some(20), "{samples}");
    // A cgroup has its own counters; this one consists only of the files.
    let cgroup = dir.path().join("slice");
    fs::create_dir(&cgroup).expect("a directory");
    for (file, text) in [
        ("cgroup.procs", format!("{}\n", child.id())),
        ("cpu.stat", "usage_usec 5\nuser_usec 5\n".to_owned()),
        ("memory.current", "25000000\n".to_owned()),
        ("io.stat", "8:0 rbytes=1 wbytes=2 rios=1\n".to_owned()),
    ] {
        fs::write(cgroup.join(file), text).expect("written");
    }
    let cgroup = format!("--cgroup={}", cgroup.display());
    // A process that is selected twice counts once.
    let output = run("kstatd", SHORT.iter().copied().chain([cgroup.as_str(), &comm]));
    assert_eq!(
        row(&output.stdout, "memory, MB")[1..],
        ["25.00", "25.00", "25.00"],
        "{}",
        output.stderr
    );
    child.kill().expect("killed");
    child.wait().expect("ended");
    let output = run("kstatd", SHORT.iter().copied().chain([comm.as_str()]));
    assert!(
        !output.status.success() && output.stderr.contains("no such process"),
        "{}",
        output.stderr
    );
}

#[test]
fn invalid_arguments_fail_immediately() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let baseline = format!("--baseline={}", file.path().display());
    let output = run("kstatd", ["overhead", "--pid=1", &baseline]);
    assert!(output.stderr.contains("not a samples file of kstatd overhead"), "{}", output.stderr);
    assert!(run("kstatd", ["overhead"]).stderr.contains("--pid"));
    // It does not measure itself.
    let named = |name: &'static str| run("kstatd", [&SHORT[..], &["--comm", name]].concat());
    assert!(named("kstatd-absent").stderr.contains("no such process"));
    let own = std::fs::read_dir("/proc").expect("processes").flatten();
    let own = own.filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok());
    if !own.into_iter().any(|comm| comm.trim_end() == "kstatd") {
        let output = named("kstatd");
        assert!(output.stderr.contains("no such process"), "{output:?}");
    }
    let short = Shell::run("exec sleep 0.1");
    let output = run("kstatd", ["overhead", "--every=20ms", "--for=100s", &short.flag()]);
    assert!(output.stderr.contains("have ended within"), "{output:?}");
    assert!(run("kstatd", ["overhead", "--cgroup=/no/such"]).stderr.contains("/no/such"));
}
