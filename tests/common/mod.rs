//! Shared by the black-box tests: the built program as a child process, and a small HTTP client.
//!
//! No test sleeps; each wait has a condition and a deadline.
#![allow(dead_code, reason = "every test binary uses a part of it")]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

pub mod cluster;
#[path = "../support/terminal.rs"]
mod terminal;

/// Far longer than any operation takes, even on a loaded machine.
pub const DEADLINE: Duration = Duration::from_secs(120);
/// Without families of workloads, no kinds are watched that `--resources` does not name.
pub const NO_LINKS: &str = "--metric-denylist=^kstatd_";

/// The pause between two probes of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The output of a finished program.
#[derive(Debug)]
pub struct Output {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// Creates a command of the program, started under the name `name`.
pub fn command(name: &str, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kstatd"));
    command.arg0(name).args(args).env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST");
    command
}

/// Runs the program to its end with this text on standard input.
pub fn run_with_input(
    name: &str,
    args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    input: &[u8],
) -> Output {
    let mut child = command(name, args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    let mut stdin = child.stdin.take().expect("stdin");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("end");
    writer.join().expect("writer");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Output { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Runs the program to its end.
pub fn run(name: &str, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    run_with_input(name, args, b"")
}

/// A running program. Dropping it kills it.
pub struct Program {
    child: Child,
    log: Arc<(Mutex<Log>, Condvar)>,
}

#[derive(Default)]
struct Log {
    lines: Vec<String>,
    ended: bool,
    /// Nobody reads on.
    is_unread: bool,
}

impl Program {
    /// Starts the program and reads its log.
    pub fn start(name: &str, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        Self::spawn(command(name, args).stdin(Stdio::null()))
    }

    /// Starts a command and reads its log.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("start");
        let stderr = child.stderr.take().expect("stderr");
        Self::read(child, stderr)
    }

    /// Starts a command, whose log goes to a terminal, and reads the log.
    pub fn spawn_on_terminal(command: &mut Command) -> Self {
        let (reader, programs) = terminal::pseudo_terminal();
        let child = command.stdout(Stdio::null()).stderr(programs).spawn().expect("start");
        // Otherwise the terminal stays open in this process.
        command.stderr(Stdio::null());
        Self::read(child, reader)
    }

    fn read(child: Child, stderr: impl Read + Send + 'static) -> Self {
        let log = Arc::new((Mutex::new(Log::default()), Condvar::new()));
        let shared = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let log = shared.0.lock().expect("log");
                let mut log = shared.1.wait_while(log, |log| log.is_unread).expect("log");
                log.lines.push(line);
                shared.1.notify_all();
            }
            shared.0.lock().expect("log").ended = true;
            shared.1.notify_all();
        });
        Self { child, log }
    }

    /// Stops reading the log, but for a part that is buffered already. Its pipe or terminal fills up.
    pub fn leave_log_unread(&self) {
        self.log.0.lock().expect("log").is_unread = true;
    }

    /// Reads the log again.
    pub fn read_log(&self) {
        self.log.0.lock().expect("log").is_unread = false;
        self.log.1.notify_all();
    }

    /// Returns all log lines so far.
    pub fn log(&self) -> Vec<String> {
        self.log.0.lock().expect("log").lines.clone()
    }

    /// Returns the first log line, past or future, that contains all `parts`.
    pub fn line(&self, parts: &[&str]) -> String {
        self.try_line(parts)
            .unwrap_or_else(|| panic!("no line with {parts:?} in {:#?}", self.log()))
    }

    /// The same; `None` if the program ended or the deadline passed.
    pub fn try_line(&self, parts: &[&str]) -> Option<String> {
        let end = Instant::now() + DEADLINE;
        let mut log = self.log.0.lock().expect("log");
        loop {
            let found = log.lines.iter().find(|line| parts.iter().all(|part| line.contains(part)));
            if let Some(line) = found {
                return Some(line.clone());
            }
            let left = end.saturating_duration_since(Instant::now());
            if log.ended || left.is_zero() {
                return None;
            }
            log = self.log.1.wait_timeout(log, left).expect("log").0;
        }
    }

    /// Returns the address after `key=` in the first log line that contains all `parts`.
    pub fn address(&self, parts: &[&str], key: &str) -> SocketAddr {
        let line = self.line(parts);
        let text = line
            .split_once(&format!("{key}="))
            .and_then(|(_, rest)| rest.split(' ').next())
            .unwrap_or_else(|| panic!("no {key} in {line}"))
            .trim_matches('"');
        let address: SocketAddr = text.parse().unwrap_or_else(|_| panic!("address in {line}"));
        if address.ip().is_unspecified() {
            SocketAddr::from(([127, 0, 0, 1], address.port()))
        } else {
            address
        }
    }

    /// Returns the process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name (`TERM`).
    pub fn signal(&self, name: &str) {
        let status = Command::new("sh")
            .args(["-c", &format!("kill -{name} {}", self.child.id())])
            .status()
            .expect("kill");
        assert!(status.success(), "kill -{name}");
    }

    /// Stops the process and waits until it is stopped; the signal `CONT` continues it.
    pub fn freeze(&self) {
        self.signal("STOP");
        until("it stands still", || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).expect("stat");
            // The state follows the name in parentheses.
            stat.rsplit_once(") ").filter(|(_, rest)| rest.starts_with('T')).map(drop)
        });
    }

    /// Waits for the process to end.
    pub fn ended(&mut self) -> ExitStatus {
        until("the program ends", || self.child.try_wait().expect("wait"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A proxy to a server that a test can close: connections are then cut, held or refused.
pub struct Gate {
    address: SocketAddr,
    state: Arc<(Mutex<Passage>, Condvar)>,
}

/// The behaviour of a [`Gate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// Connections are forwarded.
    Open,
    /// New connections are held, as by a server that does not answer; existing ones continue.
    Silent,
    /// All connections are closed.
    Cut,
}

impl Gate {
    /// Creates a gate to `target`.
    pub fn new(target: SocketAddr, passage: Passage) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        let state = Arc::new((Mutex::new(passage), Condvar::new()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || pass(client, target, &shared));
            }
        });
        Self { address, state }
    }

    /// Returns the address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the behaviour.
    pub fn set(&self, passage: Passage) {
        *self.state.0.lock().expect("gate") = passage;
        self.state.1.notify_all();
    }
}

/// Forwards one connection until either end closes it or the gate cuts it.
fn pass(client: TcpStream, target: SocketAddr, state: &Arc<(Mutex<Passage>, Condvar)>) {
    let mut passage = state.0.lock().expect("gate");
    while *passage == Passage::Silent {
        passage = state.1.wait(passage).expect("gate");
    }
    if *passage == Passage::Cut {
        return;
    }
    drop(passage);
    let Ok(server) = TcpStream::connect(target) else { return };
    let ended = Arc::new(AtomicBool::new(false));
    let both = [(&client, &server), (&server, &client)];
    for (from, to) in both.map(|(from, to)| (from.try_clone(), to.try_clone())) {
        let (Ok(mut from), Ok(mut to)) = (from, to) else { return };
        let (state, ended) = (Arc::clone(state), Arc::clone(&ended));
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
            ended.store(true, Ordering::SeqCst);
            let _passage = state.0.lock();
            state.1.notify_all();
        });
    }
    let mut passage = state.0.lock().expect("gate");
    while *passage != Passage::Cut && !ended.load(Ordering::SeqCst) {
        passage = state.1.wait(passage).expect("gate");
    }
    drop(passage);
    let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
}

/// A TCP port without a listener that the system assigns to nothing else while this value exists. A listener that
/// sets `SO_REUSEADDR` can still bind it.
pub struct Reserved {
    _socket: Socket,
    /// The address of the port.
    pub address: SocketAddr,
}

impl Reserved {
    pub fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("socket");
        socket.set_reuse_address(true).expect("option");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        socket.bind(&any.into()).expect("bind");
        let address = socket.local_addr().expect("address").as_socket().expect("an IP address");
        Self { _socket: socket, address }
    }
}

/// Replaces a file atomically, as a ConfigMap mount and most editors do.
pub fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).expect("write");
    std::fs::rename(&beside, path).expect("rename");
}

/// Repeats `probe` until it returns a value.
pub fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < end, "timed out: {what}");
        // Unlike a busy loop, this leaves the processor to the program under test.
        std::thread::park_timeout(POLL_INTERVAL);
    }
}

/// An HTTP response.
#[derive(Debug, Default)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let same = |pair: &&(String, String)| pair.0.eq_ignore_ascii_case(name);
        self.headers.iter().find(same).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("UTF-8")
    }
}

/// Sends one request on a new connection and reads the response.
pub fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> std::io::Result<Response> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    parse(&bytes, method == "HEAD").ok_or_else(|| {
        std::io::Error::other(format!("not a response: {:?}", String::from_utf8_lossy(&bytes)))
    })
}

/// Sends a `GET` that must succeed.
pub fn get(address: SocketAddr, path: &str) -> Response {
    request(address, "GET", path, &[]).unwrap_or_else(|error| panic!("GET {path}: {error}"))
}

fn parse(bytes: &[u8], is_head: bool) -> Option<Response> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_owned(), value.trim().to_owned()))
    };
    let headers: Vec<_> = lines.filter_map(header).collect();
    let mut response = Response { status, headers, body: bytes[end + 4..].to_vec() };
    if response.header("transfer-encoding") == Some("chunked") && !is_head {
        response.body = unchunk(&response.body)?;
    } else if let Some(length) = response.header("content-length").filter(|_| !is_head) {
        // A truncated body must not count as complete.
        (length.parse() == Ok(response.body.len())).then_some(())?;
    }
    Some(response)
}

fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?, 16).ok()?;
        rest = &rest[end + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
}

/// Checks that a body is valid text format 0.0.4: headers before their series, every family once, valid numbers.
/// Returns the sample lines.
pub fn valid_text(body: &str) -> Vec<&str> {
    assert!(body.is_empty() || body.ends_with('\n'), "no final newline");
    let mut seen = std::collections::BTreeSet::new();
    let mut samples = Vec::new();
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("type");
            assert!(seen.insert(name.to_owned()), "{name} twice");
            assert!(
                ["counter", "gauge", "histogram", "summary", "untyped"].contains(&kind),
                "{line}"
            );
        } else if !line.starts_with('#') {
            let (_, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("sample {line}"));
            let number = matches!(value, "NaN" | "+Inf" | "-Inf") || value.parse::<f64>().is_ok();
            assert!(number, "{line}");
            samples.push(line);
        }
    }
    samples
}
