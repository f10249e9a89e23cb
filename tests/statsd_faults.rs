//! What the StatsD listeners do when the system gives them nothing more.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};

use common::{DEADLINE, Program, until};

/// Descriptors the program may have.
const DESCRIPTORS: usize = 64;

/// An HTTP connection that stays open, as a new one would need a descriptor.
struct Scraper(TcpStream);

impl Scraper {
    fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_read_timeout(Some(DEADLINE)).expect("timeout");
        Self(stream)
    }

    fn get(&mut self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
        self.0.write_all(request.as_bytes()).expect("sent");
        let mut bytes = Vec::new();
        let mut buffer = [0; 16 * 1024];
        // Chunks end with an empty one; a short body may come with its length instead.
        until("the answer is complete", || {
            let length = self.0.read(&mut buffer).expect("read");
            assert!(length > 0, "the connection ended");
            bytes.extend_from_slice(&buffer[..length]);
            let text = String::from_utf8_lossy(&bytes);
            let (head, body) = text.split_once("\r\n\r\n")?;
            let declared = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
            });
            let complete = match declared {
                Some(length) => body.len() >= length,
                None => body.ends_with("0\r\n\r\n"),
            };
            complete.then(|| body.to_owned())
        })
    }

    /// Sum of the samples that begin with `series`.
    fn sum(&mut self, series: &str) -> f64 {
        let ours = series.starts_with("kstatd_");
        let body = self.get(if ours { "/kstatd/metrics" } else { "/metrics" });
        let lines = body.lines().filter(|line| line.starts_with(series));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.trim().parse::<f64>().ok()).sum()
    }
}

#[test]
fn without_descriptors_udp_goes_on_and_tcp_comes_back() {
    let script = format!("ulimit -n {DESCRIPTORS}; exec \"$0\" \"$@\"");
    let program = Program::spawn(
        Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_kstatd"), "statsd_exporter"])
            .args(["--web.listen-address=127.0.0.1:0", "--statsd.listen-udp=127.0.0.1:0"])
            .args(["--statsd.listen-tcp=127.0.0.1:0"])
            .stdin(Stdio::null()),
    );
    let web = program.address(&["Accepting Prometheus Requests"], "addr");
    let traffic = ["Accepting StatsD Traffic"];
    let (udp, tcp) = (program.address(&traffic, "udp"), program.address(&traffic, "tcp"));
    let mut scraper = Scraper::new(web);
    let accept_errors = "kstatd_statsd_accept_errors_total ";
    assert_eq!(scraper.sum(accept_errors), 0.0);

    // The kernel completes connections that nobody accepts.
    let connections: Vec<TcpStream> =
        (0..2 * DESCRIPTORS).map(|_| TcpStream::connect(tcp).expect("connect")).collect();
    until("accepting fails", || (scraper.sum(accept_errors) >= 2.0).then_some(()));
    let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
    sender.send_to(b"over_udp:1|c", udp).expect("sent");
    until("UDP goes on", || (scraper.sum("over_udp ") == 1.0).then_some(()));
    // The pauses grow to a second; a loop without them would have failed thousands of times by now.
    until("accepting fails again", || (scraper.sum(accept_errors) >= 5.0).then_some(()));
    assert!(scraper.sum(accept_errors) < 100.0);

    drop(connections);
    let mut stream = TcpStream::connect(tcp).expect("connect");
    stream.write_all(b"over_tcp:1|c\n").expect("sent");
    until("TCP comes back", || (scraper.sum("over_tcp ") == 1.0).then_some(()));
    let accepted = 2.0 * DESCRIPTORS as f64 + 1.0;
    until("each connection is accepted in the end", || {
        (scraper.sum("statsd_exporter_tcp_connections_total ") == accepted).then_some(())
    });
    until("none but ours is open", || {
        (scraper.sum("kstatd_statsd_tcp_open_connections ") == 1.0).then_some(())
    });
}
