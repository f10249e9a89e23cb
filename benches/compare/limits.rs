//! The physical limits as programs: servers that do only the unavoidable work.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::Path;

use anyhow::{Context, Result};

use super::mmsg::Receiver;

/// Bytes passed to the kernel at once, as large as the exporter's frames.
const PIECE: usize = 64 * 1024;

/// Answers every request on `port` with the bytes of a file, from memory.
///
/// # Errors
///
/// The file cannot be read or the port cannot be bound.
pub fn memory_writer(port: u16, file: &Path) -> Result<()> {
    let body = std::fs::read(file).with_context(|| file.display().to_string())?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    for stream in listener.incoming() {
        let mut stream = stream?;
        let mut request = [0; 4096];
        if stream.read(&mut request)? == 0 {
            continue;
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let sent = stream
            .write_all(head.as_bytes())
            .and_then(|()| body.chunks(PIECE).try_for_each(|piece| stream.write_all(piece)));
        // A scraper may disconnect.
        drop(sent);
    }
    Ok(())
}

/// Counts the datagrams and lines received on `port`, and reports them on TCP port `port`.
///
/// # Errors
///
/// The ports cannot be bound.
pub fn udp_counter(port: u16) -> Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    // The largest buffer that the system allows without privileges; servers request the same.
    let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(16 << 20);
    let lines = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let shared = std::sync::Arc::clone(&lines);
    std::thread::spawn(move || -> io::Result<()> {
        for stream in listener.incoming() {
            let mut stream = stream?;
            let mut request = [0; 4096];
            let _ = stream.read(&mut request)?;
            let body = format!(
                "statsd_exporter_lines_total {}\n",
                shared.load(std::sync::atomic::Ordering::Relaxed)
            );
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let _ = stream.write_all(answer.as_bytes());
        }
        Ok(())
    });
    let mut receiver = Receiver::new();
    loop {
        let mut count = 0;
        receiver.receive(&socket, |datagram| {
            count += memchr::memchr_iter(b'\n', datagram).count() as u64
                + u64::from(datagram.last() != Some(&b'\n'));
        })?;
        lines.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
    }
}
