//! Runs tests with one mutant switched on.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::list::Outcome;

/// Histories with random faults take longer than all other tests together, and tests of cost need an idle host.
const SLOW: [&str; 8] = [
    "random_histories",
    "a_seed_determines_the_history",
    "pairs_of_faults",
    "pairs_of_both_sides",
    "isolated_faults",
    "flapping_watches",
    "no_relist_after",
    "no_datagram_costs_twice_as_much_as_ordinary_lines",
];

/// The signals that end a process at its limit of processor time.
const SIGKILL: i32 = 9;
const SIGXCPU: i32 = 24;

/// A test of the library.
#[derive(Clone, Debug)]
pub struct Test {
    pub name: String,
    pub takes: Duration,
    /// The mutants whose place it reaches.
    pub reaches: Vec<usize>,
}

impl Test {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (name, millis) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        let reaches = words.filter_map(|id| id.parse().ok()).collect();
        Some(Self { name, takes: Duration::from_millis(millis), reaches })
    }

    fn render(&self) -> String {
        let reaches: String = self.reaches.iter().map(|id| format!(" {id}")).collect();
        format!("{} {}{reaches}\n", self.name, self.takes.as_millis())
    }
}

/// The end of a test process.
enum End {
    Passed,
    /// The first test that failed.
    Failed(String),
    TimedOut,
    /// The process ended otherwise, for example because it had no memory left.
    Crashed,
}

/// Runs tests in one process until one of them fails. The process is killed after `limit` of processor time, or when it
/// waits for long.
fn run(binary: &Path, tests: &[&str], limit: Duration, environment: &[(&str, String)]) -> End {
    // More memory than any test needs, and less than the host has.
    let script = "ulimit -v 12000000; ulimit -t \"$0\"; exec \"$@\"";
    let seconds = limit.as_secs().max(1);
    let deadline = Instant::now() + Duration::from_secs(4 * seconds + 20);
    let folder = binary.ancestors().nth(3).map(|target| target.join("mutation"));
    let mut child = Command::new("sh")
        .args(["-c", script, &seconds.to_string()])
        .arg(binary)
        .args(["--test-threads", "1", "--exact"])
        .args(tests)
        .current_dir(folder.expect("a binary in target/debug/deps"))
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
        .envs(environment.iter().map(|(name, value)| (*name, value.as_str())))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("sh");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let (sender, lines) = mpsc::channel();
    // It is not joined, because a program that a test has started may hold the pipe open.
    std::thread::spawn(move || {
        let failed = |line: String| {
            Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned())
        };
        let first = output.lines().map_while(Result::ok).find_map(failed);
        // Nobody waits any more after the deadline.
        let _ = sender.send(first);
    });
    let end = match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(first) => first.map(End::Failed),
        Err(_) => Some(End::TimedOut),
    };
    if end.is_some() {
        // An error means that it has ended.
        let _ = child.kill();
    }
    let status = child.wait().expect("a child process");
    end.unwrap_or_else(|| match status.signal() {
        None if status.success() => End::Passed,
        Some(SIGKILL | SIGXCPU) => End::TimedOut,
        _ => End::Crashed,
    })
}

/// Calls a function for each item, in as many threads as there are cores.
pub fn in_parallel<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    let next = Mutex::new(items.iter());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(item) = { next.lock().expect("no panics").next() } {
                    work(item);
                }
            });
        }
    });
}

/// Runs each test alone, without a mutant, to learn what it reaches. Returns those that pass, the fastest first. The
/// result for a binary is kept in `folder`.
pub fn trace(binary: &Path, folder: &Path) -> Vec<Test> {
    let kept = folder.join("mutation-reached");
    let built = fs::metadata(binary).and_then(|data| data.modified()).ok();
    if fs::metadata(&kept).and_then(|data| data.modified()).ok() > built {
        let text = fs::read_to_string(&kept).unwrap_or_default();
        return text.lines().filter_map(Test::parse).collect();
    }
    let listed = Command::new(binary)
        .args(["--list", "--format", "terse"])
        .output()
        .expect("the test binary");
    let listed = String::from_utf8_lossy(&listed.stdout);
    let names: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .filter(|name| !SLOW.iter().any(|slow| name.contains(slow)))
        .collect();
    let tests = Mutex::new(Vec::new());
    in_parallel(&names, |name| {
        let reached = folder.join(format!("reached-{name}"));
        let begun = Instant::now();
        let environment = [("KSTATD_REACHED", reached.to_string_lossy().into_owned())];
        let end = run(binary, &[name], Duration::from_secs(60), &environment);
        let takes = begun.elapsed();
        let text = fs::read_to_string(&reached).unwrap_or_default();
        let _ = fs::remove_file(&reached);
        if let End::Passed = end {
            let reaches = text.lines().filter_map(|line| line.parse().ok()).collect();
            tests.lock().expect("no panics").push(Test {
                name: (*name).to_owned(),
                takes,
                reaches,
            });
        } else {
            eprintln!("{name} fails without a mutant");
        }
    });
    let mut tests = tests.into_inner().expect("no panics");
    tests.sort_by(|a, b| (a.takes, &a.name).cmp(&(b.takes, &b.name)));
    let lines: String = tests.iter().map(Test::render).collect();
    fs::write(&kept, lines).expect("a file for what tests reach");
    tests
}

/// Runs the tests that reach a mutant, the fastest first, until one fails.
pub fn attempt(binary: &Path, id: usize, tests: &[Test]) -> Outcome {
    let reaching: Vec<&Test> = tests.iter().filter(|test| test.reaches.contains(&id)).collect();
    if reaching.is_empty() {
        return Outcome { result: "survived".to_owned(), by: "not reached".to_owned() };
    }
    // A mutant that never ends is found within the short limit of the first few.
    let mut rest = reaching.as_slice();
    for size in [6, 40, usize::MAX] {
        let (some, others) = rest.split_at(size.min(rest.len()));
        rest = others;
        if some.is_empty() {
            break;
        }
        let names: Vec<&str> = some.iter().map(|test| test.name.as_str()).collect();
        let takes: Duration = some.iter().map(|test| test.takes).sum();
        if let Some(outcome) = fails(binary, id, &names, Duration::from_secs(3) + 3 * takes) {
            return outcome;
        }
    }
    Outcome { result: "survived".to_owned(), by: format!("{} tests", reaching.len()) }
}

/// Runs these tests with a mutant. Returns what fails.
pub fn fails(binary: &Path, id: usize, tests: &[&str], limit: Duration) -> Option<Outcome> {
    let (result, by) = match run(binary, tests, limit, &[("KSTATD_MUTANT", id.to_string())]) {
        End::Passed => return None,
        End::Failed(name) => ("caught", name),
        End::TimedOut => ("timeout", String::new()),
        End::Crashed => ("caught", "crash".to_owned()),
    };
    Some(Outcome { result: result.to_owned(), by })
}

/// Returns the number of mutants by result for each room, see [`room`].
pub fn score<'o>(
    outcomes: impl Iterator<Item = (&'o str, &'o Outcome)>,
) -> BTreeMap<String, BTreeMap<String, usize>> {
    let mut rooms: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for (file, outcome) in outcomes {
        *rooms
            .entry(room(file).to_owned())
            .or_default()
            .entry(outcome.result.clone())
            .or_default() += 1;
    }
    rooms
}

/// The rooms of the list, by the beginning of the path.
const ROOMS: [(&str, &str); 9] = [
    ("src/kube/follow/budget.rs", "budgets"),
    ("src/kube/follow/labels.rs", "budgets"),
    ("src/kube/follow/rejected_set.rs", "budgets"),
    ("src/statsd/series/registry/budget.rs", "budgets"),
    ("src/exposition/budget.rs", "budgets"),
    ("src/kube/follow/", "kube/follow"),
    ("src/statsd/line/", "statsd/line"),
    ("src/mapper/", "mapper"),
    ("src/statsd/series/registry", "registry"),
];

/// Returns the room of a file.
pub fn room(file: &str) -> &'static str {
    ROOMS.iter().find(|(prefix, _)| file.starts_with(prefix)).map_or("budgets", |(_, room)| room)
}
