//! A running exporter and requests to it.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::NAME;
use crate::common::{Program, get, until};

/// A running exporter on free ports.
pub struct Exporter {
    pub program: Program,
    pub web: SocketAddr,
    pub udp: SocketAddr,
    pub tcp: SocketAddr,
    pub dir: tempfile::TempDir,
}

pub fn exporter(flags: &[String], mapping: Option<&str>) -> Exporter {
    let dir = tempfile::tempdir().expect("dir");
    let mut args: Vec<String> = ["web.listen-address", "statsd.listen-udp", "statsd.listen-tcp"]
        .iter()
        .map(|flag| format!("--{flag}=127.0.0.1:0"))
        .collect();
    args.extend_from_slice(flags);
    if let Some(mapping) = mapping {
        let file = dir.path().join("m.yml");
        std::fs::write(&file, mapping).expect("write");
        args.push(format!("--statsd.mapping-config={}", file.display()));
    }
    let program = Program::start(NAME, &args);
    let web = program.address(&["Accepting Prometheus Requests"], "addr");
    let traffic = ["Accepting StatsD Traffic"];
    let (udp, tcp) = (program.address(&traffic, "udp"), program.address(&traffic, "tcp"));
    Exporter { program, web, udp, tcp, dir }
}

impl Exporter {
    /// Sends lines and waits until they are counted.
    pub fn send(&self, lines: &[String]) {
        use std::io::Write;
        let before = self.lines();
        let mut stream = std::net::TcpStream::connect(self.tcp).expect("connect");
        for line in lines {
            stream.write_all(format!("{line}\n").as_bytes()).expect("send");
        }
        drop(stream);
        until("the lines are counted", || {
            (self.lines() >= before + lines.len() as f64).then_some(())
        });
    }

    fn lines(&self) -> f64 {
        self.own("statsd_exporter_lines_total").expect("lines_total")
    }

    pub fn own(&self, series: &str) -> Option<f64> {
        let text = get(self.web, "/metrics").text();
        let line = text.lines().find_map(|line| line.strip_prefix(series))?;
        line.trim().parse().ok()
    }

    /// Returns the samples sent by clients.
    pub fn user_series(&self) -> BTreeSet<String> {
        let own = ["statsd_", "process_", "promhttp_", "#"];
        let text = get(self.web, "/metrics").text();
        let is_own = |line: &&str| own.iter().any(|prefix| line.starts_with(prefix));
        text.lines().filter(|line| !is_own(line)).map(str::to_owned).collect()
    }
}
