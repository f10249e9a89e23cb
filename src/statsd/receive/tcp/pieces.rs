//! What a connection holds, cut into pieces by the time they came.
//!
//! The kernel tells the stamp of the last byte of what is read. Packets that it has kept apart (see
//! [`net::keep_apart`]) therefore each tell their own when they are read one by one. Reads cost, so this is done only
//! where other sockets have something too, and packets with several lines are not read line by line. Packets that the
//! kernel has joined are one piece. It knows bytes and stamps; what comes before what is for others to say.

use std::io;
use std::os::fd::AsRawFd;

use crate::statsd::receive::net::{self, Read};
use crate::statsd::receive::stamp::Stamp;

/// How far the end of a packet is looked for at first.
const REACH: usize = 1_024;

/// Takes what is there, as far as `space` has room. Each call of `each` is a piece, in order: bytes, and when the last of
/// them came. What came until `alone` is one piece. Returns the number of bytes; 0 is the end of the stream.
///
/// # Errors
/// What the system call says, `WouldBlock` if there is nothing.
pub(super) fn take(
    stream: &impl AsRawFd,
    space: &mut [u8],
    alone: Stamp,
    mut each: impl FnMut(&[u8], Option<Stamp>),
) -> io::Result<usize> {
    let (there, last) = net::receive(stream, space, Read::Peek)?;
    let Some(space) = space.get_mut(..there).filter(|space| !space.is_empty()) else {
        return Ok(0);
    };
    let mut done = 0;
    if let Some(last) = last
        && last > alone
        && line_end(space, 0, there).is_some()
    {
        let mut before = None;
        while let Some(rest) = space.get_mut(done..).filter(|rest| !rest.is_empty()) {
            // Where the line before was not the only one of its packet, this one may not be either.
            let packet = match before {
                Some((stamp, true)) => packet_end(stream, rest, stamp)?,
                _ => 0,
            };
            let line = line_end(rest, 0, rest.len()).unwrap_or(rest.len());
            let Some(piece) = rest.get_mut(..packet.max(line)) else { break };
            let (length, stamp) = net::receive(stream, piece, Read::Take)?;
            // A packet that was joined to the last one meanwhile has changed its stamp.
            let stamp = stamp.unwrap_or(last).min(last);
            each(piece.get(..length).unwrap_or_default(), Some(stamp));
            done += length;
            if stamp == last || length == 0 {
                break;
            }
            before = Some((stamp, before.is_some_and(|(before, _)| before == stamp)));
        }
    }
    // All of it came with the last byte. Its last line did for certain.
    if let Some(rest) = space.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let (length, stamp) = net::receive(stream, rest, Read::Take)?;
        let rest = rest.get(..length).unwrap_or_default();
        let stamp = last.or(stamp);
        let lines = rest.strip_suffix(b"\n").unwrap_or(rest);
        let cut = memchr::memrchr(b'\n', lines).map_or(0, |end| end + 1);
        let (head, line) = rest.split_at(cut);
        if !head.is_empty() {
            each(head, stamp);
        }
        each(line, stamp);
        done += length;
    }
    Ok(done)
}

/// How many of these bytes, up to a line end, have this stamp; the last of them has a later one.
fn packet_end(stream: &impl AsRawFd, bytes: &mut [u8], stamp: Stamp) -> io::Result<usize> {
    let (mut low, mut high) = (0, bytes.len());
    let mut reach = REACH;
    // Twice as far each time, then between what is known to be in and out.
    loop {
        let near = reach.min((high - low) / 2);
        let behind = line_end(bytes, low + near, high);
        let before = || line_start(bytes, low, low + near);
        let Some(end) = behind.or_else(before) else { return Ok(low) };
        let Some(prefix) = bytes.get_mut(..end) else { return Ok(low) };
        // The same bytes once more.
        if net::receive(stream, prefix, Read::Peek)?.1 == Some(stamp) {
            (low, reach) = (end, reach.saturating_mul(2));
        } else {
            (high, reach) = (end, usize::MAX);
        }
    }
}

/// Where the line ends that byte `from` is in, unless that is at `to` or behind it.
fn line_end(bytes: &[u8], from: usize, to: usize) -> Option<usize> {
    let end = from + memchr::memchr(b'\n', bytes.get(from..to)?)? + 1;
    (end < to).then_some(end)
}

/// Where the line begins that byte `to` is in, unless that is at `from` or before it.
fn line_start(bytes: &[u8], from: usize, to: usize) -> Option<usize> {
    let start = from + memchr::memrchr(b'\n', bytes.get(from..to)?)? + 1;
    (start > from).then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::{SocketAddr, TcpStream};
    use std::time::{Duration, Instant};

    /// Both ends of a connection; packets at the accepted one have stamps.
    fn pair() -> (TcpStream, TcpStream) {
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let listener = net::bind_tcp(any).expect("bind");
        let sender = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        sender.set_nodelay(true).expect("option");
        let (accepted, _) = listener.accept().expect("accepted");
        (sender, accepted)
    }

    /// What a connection holds: each piece with its stamp.
    fn pieces(stream: &TcpStream, alone: Stamp) -> Vec<(String, Stamp)> {
        let mut pieces = Vec::new();
        let mut space = vec![0; 64 << 10];
        let taken = take(stream, &mut space, alone, |bytes, stamp| {
            let text = String::from_utf8(bytes.to_vec()).expect("text");
            pieces.push((text, stamp.expect("a stamp")));
        });
        let length: usize = pieces.iter().map(|(text, _)| text.len()).sum();
        assert_eq!(taken.ok(), Some(length));
        let again = take(stream, &mut space, alone, |_, _| {});
        assert_eq!(again.map_err(|error| error.kind()), Err(io::ErrorKind::WouldBlock));
        pieces
    }

    /// Waits until the kernel stamps, which it begins a moment after it is told to.
    fn warm_up(sender: &mut TcpStream, stream: &TcpStream) {
        let end = Instant::now() + Duration::from_secs(120);
        let mut space = [0; 16];
        let mut before = None;
        loop {
            assert!(Instant::now() < end, "packets are not stamped");
            sender.write_all(b"w\n").expect("sent");
            let (_, stamp) = net::receive(stream, &mut space, Read::Take).expect("received");
            net::keep_apart(stream);
            if before.is_some_and(|before| stamp > Some(before)) {
                return;
            }
            before = stamp;
        }
    }

    #[test]
    fn packets_keep_their_stamps_until_they_are_read() {
        let (mut sender, stream) = pair();
        warm_up(&mut sender, &stream);
        let long: String = (0..40).map(|n| format!("line{n}:1|c\n")).collect();
        let packets =
            ["a:1|c\n", "b:1|c\n", "c:1|c\nd:1|c\n", "e:1|c\n", &long, "f:1", "|c\n", "g"];
        let mut times = Vec::new();
        for packet in packets {
            sender.write_all(packet.as_bytes()).expect("sent");
            times.push(Stamp::now());
        }
        let pieces = pieces(&stream, Stamp::MIN);
        let text: String = pieces.iter().map(|(text, _)| &**text).collect();
        assert_eq!(text, packets.concat());
        assert!(pieces.is_sorted_by_key(|(_, stamp)| *stamp));
        // Each line came with the packet that has its end.
        let mut place = 0;
        let mut ends = packets.iter().scan(0, |at, packet| {
            *at += packet.len();
            Some(*at)
        });
        let mut end = ends.next().expect("a packet");
        let mut times = times.into_iter();
        let (mut after, mut before) = (Stamp::MIN, times.next().expect("a time"));
        for (piece, stamp) in pieces {
            place += piece.len();
            while place > end {
                end = ends.next().expect("a packet");
                (after, before) = (before, times.next().expect("a time"));
            }
            assert!(after <= stamp && stamp <= before, "{piece:?} has the stamp of another packet");
        }
    }

    #[test]
    fn what_nobody_else_can_come_between_is_read_at_once() {
        let (mut sender, stream) = pair();
        warm_up(&mut sender, &stream);
        for packet in ["a:1|c\n", "b:1|c\n", "c:1|c\n"] {
            sender.write_all(packet.as_bytes()).expect("sent");
        }
        let pieces = pieces(&stream, Stamp::now());
        let texts: Vec<&str> = pieces.iter().map(|(text, _)| &**text).collect();
        assert_eq!(texts, ["a:1|c\nb:1|c\n", "c:1|c\n"], "the last line came last for certain");
    }

    #[test]
    fn the_end_of_a_stream_is_no_piece() {
        let (mut sender, stream) = pair();
        sender.write_all(b"a:1|c\nb").expect("sent");
        drop(sender);
        let mut space = [0; 100];
        let mut texts = Vec::new();
        let mut taken =
            || take(&stream, &mut space, Stamp::MAX, |bytes, _| texts.extend_from_slice(bytes));
        assert_eq!(taken().ok(), Some(7));
        assert_eq!(taken().ok(), Some(0));
        assert_eq!(texts, b"a:1|c\nb");
    }
}
