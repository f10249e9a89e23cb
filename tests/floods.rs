//! Clients without credentials that try to block others: HTTP/2 floods over TLS, closed windows, half-finished
//! handshakes, guessed passwords. Frames are written by hand.

#[path = "common/any_certificate.rs"]
mod any_certificate;
mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use socket2::{Domain, Socket, Type};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConnection, DEFAULT_VERSIONS, StreamOwned};

use common::{DEADLINE, Program, get, until};

/// Maximum wait of a well-behaved client: Prometheus' default timeout.
const PATIENCE: Duration = Duration::from_secs(10);

/// The hash of the password `pw` with the lowest cost, so that a test can guess many.
const HASH: &str = "$2a$04$abcdefghijklmnopqrstuuyvPXIbu7xe6/CED2DzX8z6Si09MlzlW";

/// More wrong passwords than the program caches.
const GUESSES: usize = 2_500;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const CANCEL: [u8; 4] = [0, 0, 0, 8];

type Encrypted = StreamOwned<ClientConnection, TcpStream>;

fn encrypted(address: SocketAddr, protocol: &str) -> std::io::Result<Encrypted> {
    let mut config =
        any_certificate::client(ring::default_provider(), DEFAULT_VERSIONS).with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let connection =
        ClientConnection::new(Arc::new(config), any_certificate::server_name()).expect("client");
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    let mut stream = StreamOwned::new(connection, stream);
    stream.conn.complete_io(&mut stream.sock)?;
    Ok(stream)
}

/// Sends a request of a well-behaved client on a new connection; returns the status and the body.
fn ask(address: SocketAddr, path: &str, headers: &str) -> std::io::Result<(u16, String)> {
    let mut stream = encrypted(address, "http/1.1")?;
    let head = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(|| std::io::Error::other(text.clone()))?, text))
}

/// The same; retries until it is served, as a prober does, and fails after [`PATIENCE`].
fn request_until_served(address: SocketAddr, path: &str, headers: &str) -> String {
    let begin = Instant::now();
    loop {
        let answer = ask(address, path, headers);
        let elapsed = begin.elapsed();
        assert!(elapsed < PATIENCE, "{path} after {elapsed:?}: {answer:?}");
        match answer {
            Ok((200, text)) => return text,
            Ok(_) | Err(_) => std::thread::yield_now(),
        }
    }
}

/// An HTTP/2 connection with hand-written frames.
struct Http2 {
    stream: Encrypted,
    next: u32,
}

#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Http2 {
    /// Opens a connection that allows `window` bytes of each response.
    fn open(address: SocketAddr, window: u32) -> std::io::Result<Self> {
        let mut stream = encrypted(address, "h2")?;
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
        let mut connection = Self { stream, next: 1 };
        let mut setting = vec![0, 4];
        setting.extend(window.to_be_bytes());
        connection.send(SETTINGS, 0, 0, &setting)?;
        Ok(connection)
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        let length = (payload.len() as u32).to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.stream.write_all(&frame)
    }

    /// Sends a request and returns its stream ID.
    fn ask(&mut self, path: &str) -> std::io::Result<u32> {
        let stream = self.next;
        self.next += 2;
        // :method GET, :scheme https, and literal :authority and :path.
        let mut head = vec![0x82, 0x87, 0x01, 4];
        head.extend(b"test");
        head.extend([0x04, u8::try_from(path.len()).expect("short")]);
        head.extend(path.as_bytes());
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, &head)?;
        Ok(stream)
    }

    fn receive(&mut self) -> std::io::Result<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let [a, b, c, kind, flags, d, e, f, g] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload)?;
        Ok(Frame { kind, flags, stream: u32::from_be_bytes([d, e, f, g]), payload })
    }

    /// Reads the next frame of this type on a stream.
    fn frame(&mut self, kind: u8, stream: u32) -> Frame {
        loop {
            let frame = self.receive().expect("a frame");
            if (frame.kind, frame.stream) == (kind, stream) {
                return frame;
            }
        }
    }

    fn open_window(&mut self, stream: u32, by: u32) -> std::io::Result<()> {
        self.send(WINDOW_UPDATE, 0, stream, &by.to_be_bytes())
    }
}

struct Kstatd {
    program: Program,
    main: SocketAddr,
    telemetry: SocketAddr,
    _files: tempfile::TempDir,
}

/// Starts the program with TLS, a limit of open files, some series, and additional web configuration.
fn kstatd(open_files: u32, more: &str) -> Kstatd {
    let files = tempfile::tempdir().expect("folder");
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("certificate");
    let write = |name: &str, text: String| {
        std::fs::write(files.path().join(name), text).expect("write");
    };
    write("cert.pem", key.cert.pem());
    write("key.pem", key.signing_key.serialize_pem());
    write(
        "web.yml",
        format!("tls_server_config: {{cert_file: cert.pem, key_file: key.pem}}\n{more}"),
    );
    let command = format!(
        "ulimit -n {open_files}; exec {} run --listen=127.0.0.1:0 --telemetry-listen=127.0.0.1:0 \
         --statsd.listen-udp= --statsd.listen-tcp=127.0.0.1:0 --web.config.file={}",
        env!("CARGO_BIN_EXE_kstatd"),
        files.path().join("web.yml").display()
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]).stdin(Stdio::null());
    shell.env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST");
    let program = Program::spawn(&mut shell);
    let main = program.address(&["Started metrics server"], "address");
    let telemetry = program.address(&["Started self metrics server"], "address");
    let statsd = program.address(&["Accepting StatsD Traffic"], "tcp");
    let lines: String = (0..2_000).map(|n| format!("hits:1|c|#path:/{n}\n")).collect();
    TcpStream::connect(statsd).expect("connect").write_all(lines.as_bytes()).expect("send");
    Kstatd { program, main, telemetry, _files: files }
}

/// Returns the process's anonymous memory in bytes.
fn own_memory(program: &Program) -> usize {
    let path = format!("/proc/{}/smaps_rollup", program.id());
    let text = std::fs::read_to_string(path).expect("memory");
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("a number");
    let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes * 1024
}

/// Runs `attack` repeatedly on several threads while `meanwhile` runs.
fn during_attack(
    attackers: usize,
    attack: impl Fn(usize, &AtomicBool) -> std::io::Result<()> + Sync,
    meanwhile: impl FnOnce(),
) {
    let over = AtomicBool::new(false);
    let rounds = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 0..attackers {
            let (over, rounds, attack) = (&over, &rounds, &attack);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    // An attacker's connections may be refused, reset and closed.
                    let _ = attack(number, over);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // The threads are joined also if it fails.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(meanwhile));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(rounds.load(Ordering::Relaxed) >= attackers);
}

/// Reads until the connection ends or the attack is over.
fn read_until_over(connection: &mut Http2, over: &AtomicBool) -> std::io::Result<()> {
    connection.stream.sock.set_read_timeout(Some(Duration::from_millis(100)))?;
    while !over.load(Ordering::Relaxed) {
        match connection.stream.read(&mut [0; 4 << 10]) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// At least forty clients, with 64 open files, that stall each response and reconnect when they are closed.
#[test]
fn clients_with_a_closed_window_do_not_block_others() {
    let kstatd = kstatd(64, "");
    let listeners = [kstatd.main, kstatd.telemetry];
    for window in [0, 1] {
        let asked = AtomicUsize::new(0);
        let attack = |number: usize, over: &AtomicBool| {
            let mut connection = Http2::open(listeners[number % 4 / 3], window)?;
            connection.ask(["/metrics", "/healthz", "/status"][number % 3])?;
            asked.fetch_add(1, Ordering::Relaxed);
            read_until_over(&mut connection, over)
        };
        during_attack(40, attack, || {
            until("they take what there is", || {
                (asked.load(Ordering::Relaxed) >= 40).then_some(())
            });
            for _ in 0..5 {
                for address in listeners {
                    request_until_served(address, "/healthz", "");
                    request_until_served(address, "/metrics", "");
                }
            }
        });
    }
    kstatd.program.line(&["HTTP connection limit reached"]);
}

/// A stalled stream is reset after ten seconds; other streams continue, and its memory is freed.
#[test]
fn stalled_stream_is_reset_and_its_response_freed() {
    let open = kstatd(1_024, "");
    let users = kstatd(1_024, &format!("basic_auth_users: {{me: {HASH}}}\n"));
    let reset = |address: SocketAddr, path: &'static str, window: u32| {
        move || {
            let mut connection = Http2::open(address, window).expect("connection");
            let begin = Instant::now();
            let stalled = connection.ask(path).expect("request");
            connection.frame(HEADERS, stalled);
            let other = connection.ask("/healthz").expect("request");
            connection.open_window(other, 1_000).expect("update");
            while connection.frame(DATA, other).flags & END_STREAM == 0 {}
            let reset = connection.frame(RST_STREAM, stalled);
            assert_eq!(reset.payload, CANCEL, "{path}");
            let passed = begin.elapsed().as_secs();
            assert!((10..60).contains(&passed), "{path}: {passed} s");
            let other = connection.ask("/healthz").expect("request");
            connection.open_window(other, 1_000).expect("update");
            while connection.frame(DATA, other).flags & END_STREAM == 0 {}
        }
    };
    std::thread::scope(|scope| {
        for (path, window) in [("/metrics", 0), ("/metrics", 1), ("/status", 1), ("/healthz", 0)] {
            scope.spawn(reset(open.main, path, window));
        }
        scope.spawn(move || {
            let mut connection = Http2::open(users.main, 0).expect("connection");
            let refused = connection.ask("/metrics").expect("request");
            assert_eq!(connection.frame(RST_STREAM, refused).payload, CANCEL);
        });
    });
    let facts = request_until_served(open.main, "/status?format=json", "");
    let body = facts.split_once("\r\n\r\n").expect("a body").1;
    let facts: serde_json::Value = serde_json::from_str(body).expect("JSON");
    let scrapes = facts["scrapes"].as_array().expect("scrapes");
    assert_eq!(scrapes.len(), 2, "{scrapes:?}");
    assert!(scrapes.iter().all(|scrape| scrape["complete"] == false), "{scrapes:?}");
}

#[test]
fn frame_floods_do_not_affect_other_clients() {
    let kstatd = kstatd(256, "");
    request_until_served(kstatd.main, "/metrics", "");
    let steady = own_memory(&kstatd.program);
    type Attack = fn(&mut Http2, &AtomicBool) -> std::io::Result<()>;
    let rapid_reset: Attack = |connection, over| {
        while !over.load(Ordering::Relaxed) {
            let stream = connection.ask("/metrics")?;
            connection.send(RST_STREAM, 0, stream, &CANCEL)?;
        }
        Ok(())
    };
    let continuation: Attack = |connection, over| {
        let mut header = vec![0x00, 1, b'x', 100];
        header.extend([b'y'; 100]);
        connection.send(HEADERS, END_STREAM, 1, &[0x82, 0x87])?;
        while !over.load(Ordering::Relaxed) {
            connection.send(CONTINUATION, 0, 1, &header.repeat(100))?;
        }
        Ok(())
    };
    let settings: Attack = |connection, over| {
        while !over.load(Ordering::Relaxed) {
            connection.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0].repeat(20))?;
        }
        Ok(())
    };
    let pings: Attack = |connection, over| {
        while !over.load(Ordering::Relaxed) {
            connection.send(PING, 0, 0, &[7; 8])?;
        }
        Ok(())
    };
    let streams: Attack = |connection, over| {
        for _ in 0..2_000 {
            connection.ask("/metrics")?;
        }
        read_until_over(connection, over)
    };
    let one_byte: Attack = |connection, over| {
        let stream = connection.ask("/metrics")?;
        while !over.load(Ordering::Relaxed) {
            connection.open_window(stream, 1)?;
            connection.frame_or_end(DATA)?;
        }
        Ok(())
    };
    for (what, attack) in [
        ("rapid reset", rapid_reset),
        ("CONTINUATION", continuation),
        ("SETTINGS", settings),
        ("PING", pings),
        ("many streams", streams),
        ("one-byte window updates", one_byte),
    ] {
        during_attack(
            8,
            |number, over| {
                let address = [kstatd.main, kstatd.telemetry][number % 2];
                let mut connection = Http2::open(address, 0)?;
                connection.stream.sock.set_write_timeout(Some(Duration::from_millis(500)))?;
                attack(&mut connection, over)
            },
            || {
                for address in [kstatd.main, kstatd.telemetry] {
                    for path in ["/healthz", "/metrics"] {
                        request_until_served(address, path, "");
                    }
                }
            },
        );
        let more = own_memory(&kstatd.program).saturating_sub(steady);
        assert!(more < 64 << 20, "{what}: {more} bytes more");
    }
}

impl Http2 {
    /// Reads up to a frame of this type.
    fn frame_or_end(&mut self, kind: u8) -> std::io::Result<()> {
        while self.receive()?.kind != kind {}
        Ok(())
    }
}

/// No bytes, the beginning of a ClientHello, and a complete handshake without a preface.
#[test]
fn half_finished_handshakes_do_not_block_others() {
    let kstatd = kstatd(64, "");
    let listeners = [kstatd.main, kstatd.telemetry];
    let attack = |number: usize, over: &AtomicBool| {
        let address = listeners[number % 2];
        if number % 3 == 2 {
            let stream = encrypted(address, "h2")?;
            return read_until_over(&mut Http2 { stream, next: 1 }, over);
        }
        let mut stream = TcpStream::connect(address)?;
        if number % 3 == 1 {
            stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")?;
        }
        stream.set_read_timeout(Some(Duration::from_millis(100)))?;
        while !over.load(Ordering::Relaxed) {
            match stream.read(&mut [0; 64]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                _ => break,
            }
        }
        Ok(())
    };
    during_attack(60, attack, || {
        for _ in 0..5 {
            for address in listeners {
                request_until_served(address, "/healthz", "");
                request_until_served(address, "/metrics", "");
            }
        }
    });
}

/// More wrong passwords than are cached, from far more clients than are checked at once.
#[test]
fn guessed_passwords_do_not_block_valid_users() {
    let kstatd = kstatd(1_024, &format!("basic_auth_users: {{me: {HASH}}}\n"));
    let basic = |password: &str| {
        let text = base64::engine::general_purpose::STANDARD.encode(format!("me:{password}"));
        format!("Authorization: Basic {text}\r\n")
    };
    let right = basic("pw");
    request_until_served(kstatd.main, "/metrics", &right);
    let (next, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let attack = |_: usize, over: &AtomicBool| {
        let mut stream = encrypted(kstatd.main, "http/1.1")?;
        // A short timeout for guesses keeps the test short.
        stream.sock.set_read_timeout(Some(Duration::from_secs(5)))?;
        while !over.load(Ordering::Relaxed) {
            let guess = basic(&format!("guess{}", next.fetch_add(1, Ordering::Relaxed)));
            let head = format!("GET /metrics HTTP/1.1\r\nHost: test\r\n{guess}\r\n");
            stream.write_all(head.as_bytes())?;
            let mut answer = [0; 4 << 10];
            let length = stream.read(&mut answer)?;
            let text = String::from_utf8_lossy(&answer[..length]).into_owned();
            assert!(text.starts_with("HTTP/1.1 401") || text.starts_with("HTTP/1.1 503"), "{text}");
            answered.fetch_add(1, Ordering::Relaxed);
            if text.contains("connection: close") {
                return Ok(());
            }
        }
        Ok(())
    };
    during_attack(160, attack, || {
        until("they guess", || (answered.load(Ordering::Relaxed) > GUESSES).then_some(()));
        for _ in 0..20 {
            let begin = Instant::now();
            let (status, text) = ask(kstatd.main, "/metrics", &right).expect("an answer");
            assert_eq!(status, 200, "{text}");
            assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
        }
    });
}

/// A reset stream is an incomplete scrape, like a closed connection.
#[test]
fn reset_streams_are_incomplete_scrapes() {
    let kstatd = kstatd(64, "");
    let counted = || request_until_served(kstatd.telemetry, "/metrics", "");
    until("the response is larger than the window", || {
        request_until_served(kstatd.main, "/metrics", "").contains("/1999\"").then_some(())
    });
    let mut connection = Http2::open(kstatd.main, 1_000).expect("connection");
    let stream = connection.ask("/metrics").expect("request");
    connection.frame(DATA, stream);
    assert!(!counted().contains("kstatd_http_scrapes_incomplete_total{"));
    connection.send(RST_STREAM, 0, stream, &CANCEL).expect("reset");
    until("the reset is counted", || {
        let series = "kstatd_http_scrapes_incomplete_total{cause=\"closed\",scraper=\"other\"} 1";
        counted().contains(series).then_some(())
    });
}

/// Each page has a row for every list/watch, and its client reads nothing but the head.
#[test]
fn pages_that_nobody_reads_use_little_memory() {
    let namespaces: Vec<String> = (0..1_000).map(|number| format!("n{number}")).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kstatd"));
    command.args(["run", "--apiserver=http://127.0.0.1:1", "--statsd.listen-udp="]);
    command.args([
        "--listen=127.0.0.1:0",
        "--telemetry-listen=127.0.0.1:0",
        "--statsd.listen-tcp=",
    ]);
    command.arg(format!("--namespaces={}", namespaces.join(",")));
    let program = Program::spawn(command.stdin(Stdio::null()));
    let main = program.address(&["Started metrics server"], "address");
    let telemetry = program.address(&["Started self metrics server"], "address");
    // Those of one client wait for one another, but not those of another client.
    for (address, path) in [(main, "/status?format=json"), (telemetry, "/metrics")] {
        let answer = |client| {
            let mut stream = unread(client, address, path).expect("a connection");
            let mut head = [0; 12];
            stream.read_exact(&mut head).expect("an answer");
            assert_eq!(&head, b"HTTP/1.1 200");
            stream
        };
        until("rows of all list/watches", || {
            (get(address, path).text().len() > 6 << 20).then_some(())
        });
        let first = answer("127.0.0.2");
        let before = own_memory(&program);
        let others: Vec<_> = (0..16).map(|_| unread("127.0.0.3", address, path)).collect();
        assert!(others.iter().all(Result::is_ok));
        // This one is answered after those that are made at all.
        let last = answer("127.0.0.4");
        let more = own_memory(&program).saturating_sub(before);
        assert!(more < 64 << 20, "{path}: {more}");
        drop((first, last));
    }
}

/// Sends a request from an address of this host, with a small receive buffer.
fn unread(client: &str, address: SocketAddr, path: &str) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_recv_buffer_size(4 << 10)?;
    socket.bind(&SocketAddr::new(client.parse().expect("an address"), 0).into())?;
    socket.connect(&address.into())?;
    let mut stream = TcpStream::from(socket);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")?;
    Ok(stream)
}

/// Under the names of the originals they are for everybody, as those of the originals.
#[test]
fn few_profiles_that_nobody_reads_are_held() {
    let folder = tempfile::tempdir().expect("a folder");
    let mapping = folder.path().join("mapping.yml");
    let comments = format!("# {}\n", "x".repeat(98)).repeat(40_000);
    std::fs::write(&mapping, format!("{comments}mappings: [{{match: a, name: a}}]\n"))
        .expect("written");
    let program = Program::start(
        "statsd_exporter",
        [
            &format!("--statsd.mapping-config={}", mapping.display()),
            "--web.listen-address=127.0.0.1:0",
            "--statsd.listen-udp=",
            "--statsd.listen-tcp=127.0.0.1:0",
        ],
    );
    let main = program.address(&["Accepting Prometheus Requests"], "addr");
    let path = "/debug/pprof/configuration";
    let clients: Vec<String> = (2..12).map(|last| format!("127.0.0.{last}")).collect();
    let streams = clients.iter().flat_map(|client| [client; 2]);
    let streams: Vec<TcpStream> =
        streams.map(|client| unread(client, main, path).expect("a connection")).collect();
    let is_answered = |stream: &&TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
        stream.peek(&mut [0]).is_ok_and(|length| length > 0)
    };
    until("an answer", || streams.iter().find(is_answered));
    let answered = streams.iter().filter(is_answered).count();
    assert!((2..=8).contains(&answered), "{answered} answers are held");
}

/// Silence after the connection is opened, and requests for ever on a connection whose end is never confirmed.
#[test]
fn clients_do_not_delay_the_end() {
    let mut kstatd = kstatd(64, "");
    let silent = [kstatd.main, kstatd.telemetry].map(TcpStream::connect);
    let mut deaf = Http2::open(kstatd.main, 1 << 20).expect("a connection");
    deaf.request_to_head().expect("an answer");
    // All three are accepted: in the order of their arrival.
    request_until_served(kstatd.telemetry, "/metrics", "");
    let begin = Instant::now();
    kstatd.program.signal("TERM");
    while deaf.request_to_head().is_ok() {}
    kstatd.program.ended();
    let took = begin.elapsed();
    // A client that is waited for delays it to 10 s.
    assert!(took < Duration::from_secs(9), "ended after {took:?}");
    drop(silent);
}

impl Http2 {
    /// Sends a request and reads up to the head of its answer, or to the refusal of its stream. Confirms no PING.
    fn request_to_head(&mut self) -> std::io::Result<()> {
        let stream = self.ask("/healthz")?;
        loop {
            let frame = self.receive()?;
            if frame.stream == stream && [HEADERS, RST_STREAM].contains(&frame.kind) {
                return Ok(());
            }
        }
    }
}
