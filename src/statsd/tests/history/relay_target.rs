//! The target of a relay: a real UDP socket, which refuses all datagrams at times. The relay sends on the thread of the test, at
//! the times of the simulated clock at which its own thread would.
//!
//! In some histories the target has a name and moves: its former address refuses datagrams, and the name server, which takes its time,
//! returns another one. While datagrams are refused, the relay looks the name up again and again, with pauses that double until it has
//! recovered.
//!
//! In some histories its thread is stopped for a while, and more lines arrive than fit into its queue.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::History;
use super::features::Feature;
use crate::statsd::relay::lookup::{Found, MAX_PAUSE, MIN_PAUSE};
use crate::statsd::relay::{
    BATCH_BYTES, CONFIRM_AFTER, FLUSH_AFTER, QUEUE_BYTES, RECOVERED_AFTER, Relay, RelayConfig,
    RelayCounts, RelaySender,
};

/// The target of the relay of a history.
pub(super) struct RelayTarget {
    rng: Rng,
    sender: RelaySender,
    sent_counts: Arc<RelayCounts>,
    packet_length: usize,
    socket: UdpSocket,
    /// The address of the relay, once it has sent a datagram.
    relay: Option<SocketAddr>,
    refuses: bool,
    /// The start of the simulated clock.
    epoch: Instant,
    now: Duration,
    /// The time at which the relay wants to go on.
    wake_at: Option<Duration>,
    /// The lines that the relay holds, and since when.
    waiting: VecDeque<(Duration, String)>,
    /// The lines that arrived, and when, which do not count as relayed yet.
    arrived: VecDeque<(Duration, usize)>,
    /// The lines that have been relayed, dropped, or too long so far, and the datagrams.
    counts: [usize; 3],
    packets: u64,
    /// The lines so far that are not too long.
    lines: u64,
    moves: Option<Moves>,
    /// Determines when the queue overflows, if it does.
    overflows: Option<Rng>,
}

/// The addresses of a target with a name.
struct Moves {
    rng: Rng,
    /// The look-ups of the relay.
    asked: Receiver<Sender<Found>>,
    /// The look-up that is running, and when it will be answered.
    running: Option<(Duration, Sender<Found>)>,
    asked_at: Option<Duration>,
    /// The longest pause after that look-up, and after the next one.
    pauses: [Duration; 2],
    /// The time of the first datagram that arrived since the last one that was refused.
    arrives_since: Option<Duration>,
    /// The time by which the relay has recovered, if no datagram is refused before.
    recovered: Option<Duration>,
    /// The time of its last recovery.
    recovered_at: Option<Duration>,
    /// The former sockets, which refuse datagrams.
    former: Vec<UdpSocket>,
    /// The time of the last move, until the relay must know of it.
    moved: Option<Duration>,
    /// The time from which the relay must know the address.
    known_at: Option<Duration>,
    /// The time of the last datagram that was refused, unless others arrived since, and whether a look-up had no answer then.
    refused: Option<(Duration, bool)>,
}

/// An address that nobody has, so a socket that is connected to it refuses all datagrams.
const NOBODY: ([u8; 4], u16) = ([127, 0, 0, 1], 9);

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_nonblocking(true).expect("an option");
    socket
}

impl RelayTarget {
    /// Returns a target and the relay that sends to it, in one of two histories.
    pub(super) fn start(seed: u64) -> Option<(Self, Relay)> {
        let mut rng = Rng::with_seed(seed ^ 0x510e_527f_ade6_82d1);
        let socket = socket();
        let address = socket.local_addr().expect("an address").to_string();
        let packet_length = [0, 15, 60, 1_400][rng.usize(0..4)];
        let config = RelayConfig { address: "target".to_owned(), target: address, packet_length };
        let is_there = rng.bool();
        let (relay, mut sender) = Relay::new(&config).expect("an address");
        let moves = Moves::start(seed, &mut sender);
        // With shorter datagrams, the long lines of an overflow would not be relayed.
        let has_room = matches!(packet_length, 0 | 1_400);
        let mut overflows = Rng::with_seed(seed ^ 0x3c6e_f372_fe94_f82b);
        let target = Self {
            rng,
            sender,
            sent_counts: Arc::clone(&relay.counts),
            packet_length,
            socket,
            relay: None,
            refuses: false,
            epoch: Instant::now(),
            now: Duration::ZERO,
            wake_at: None,
            waiting: VecDeque::new(),
            arrived: VecDeque::new(),
            counts: [0; 3],
            packets: 0,
            lines: 0,
            moves,
            overflows: (has_room && overflows.bool()).then_some(overflows),
        };
        is_there.then_some((target, relay))
    }

    /// Returns true if the queue overflows next.
    pub(super) fn overflows(&mut self) -> bool {
        self.overflows.as_mut().is_some_and(|rng| rng.u32(0..100) == 0)
    }

    /// Notes lines that the pipeline has got while the relay took none from its empty queue: those that have no room are dropped.
    fn note_overflow(&mut self, line: &str, count: usize) {
        let room = QUEUE_BYTES / (line.len() + 1 + BATCH_BYTES);
        let queued = (0..count.min(room)).map(|_| (self.now, format!("{line}\n")));
        self.waiting.extend(queued);
        self.counts[1] += count.saturating_sub(room);
        self.lines += count as u64;
    }

    /// Notes lines that the pipeline has got, and lets the relay take them from its queue.
    pub(super) fn sent(&mut self, lines: &[String]) -> Result<(), String> {
        let is_long = |line: &str| self.packet_length > 0 && line.len() >= self.packet_length;
        for line in lines {
            if is_long(line) {
                self.counts[2] += 1;
            } else {
                self.lines += 1;
                self.waiting.push_back((self.now, format!("{line}\n")));
            }
        }
        while self.sender.take_queued() {
            self.step()?;
        }
        self.check_waiting()
    }

    /// Ends the relay, which sends what it still has, so that each line counts as relayed or dropped.
    pub(super) fn end(&mut self, relay: &Relay) -> Result<(), String> {
        relay.shutdown();
        self.sender.run();
        let counts = [&relay.counts.relayed_lines, &relay.counts.dropped_lines];
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        match counts.iter().sum::<u64>() == self.lines {
            true => Ok(()),
            false => {
                Err(format!("lines relayed, dropped: {counts:?} of {} at the end", self.lines))
            }
        }
    }

    /// Lets time pass, in which the relay goes on whenever it wants to.
    pub(super) fn advance_to(&mut self, now: Duration) -> Result<(), String> {
        while let Some(at) = self.wake_at.filter(|at| *at <= now) {
            if at < self.now {
                return Err(format!("the relay wants to go on at {at:?}, before {:?}", self.now));
            }
            self.now = at;
            self.step()?;
            self.check_waiting()?;
            if self.wake_at.is_some_and(|next| next <= at) {
                return Err(format!("the relay does not wait at {at:?}"));
            }
        }
        self.now = now;
        self.check_waiting()
    }

    /// Performs a step of the relay, and compares what arrives and what is dropped with the lines.
    fn step(&mut self) -> Result<(), String> {
        let now = self.now;
        if let Some(moves) = &mut self.moves {
            moves.answer(now, self.socket.local_addr().expect("an address"));
        }
        let next = self.sender.step(self.epoch + now);
        self.wake_at = next.map(|at| at - self.epoch);
        let is_known = match &mut self.moves {
            Some(moves) => {
                moves.note_recovery(now);
                moves.note_asked(now)?;
                moves.moved.is_none() || moves.known_at.is_some_and(|at| at <= now)
            }
            None => true,
        };
        let [packets, dropped] = [&self.sent_counts.packets, &self.sent_counts.dropped_lines]
            .map(|count| count.load(Ordering::Relaxed));
        let (sent, dropped) = (packets - self.packets, dropped as usize - self.counts[1]);
        self.packets = packets;
        if dropped > 0 {
            if !self.refuses && is_known {
                return Err(format!("{dropped} lines are dropped although the target is there"));
            }
            if dropped > self.waiting.len() {
                return Err(format!("{dropped} lines are dropped, not {}", self.waiting.len()));
            }
            self.waiting.drain(..dropped);
            self.counts[1] += dropped;
            if let Some(moves) = &mut self.moves {
                moves.refused(now)?;
            }
        } else {
            if sent > 0 && (self.refuses || !is_known) {
                return Err(format!("{sent} datagrams are refused, but no line is dropped"));
            }
            (0..sent).try_for_each(|_| self.receive())?;
            if let Some(moves) = self.moves.as_mut().filter(|_| sent > 0) {
                moves.arrived(now);
                if is_known {
                    moves.moved = None;
                }
            }
        }
        let mut buffer = [0; 2_000];
        if let Ok((length, _)) = self.socket.recv_from(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..length]);
            return Err(format!("relayed once more, or to a target that refuses: {text:?}"));
        }
        Ok(())
    }

    /// Receives a datagram, which has the lines that come next.
    fn receive(&mut self) -> Result<(), String> {
        let mut buffer = [0; 2_000];
        let end = Instant::now() + Duration::from_secs(60);
        let length = loop {
            match self.socket.recv_from(&mut buffer) {
                Ok((length, relay)) => {
                    self.relay = Some(relay);
                    break length;
                }
                Err(_) if Instant::now() > end => {
                    let waiting = &self.waiting;
                    return Err(format!("a datagram counts as sent but is not there: {waiting:?}"));
                }
                // The kernel delivers to the loopback interface at once, unless the machine is busy.
                Err(_) => std::thread::yield_now(),
            }
        };
        let text = String::from_utf8_lossy(&buffer[..length]);
        let since = self.waiting.front().map(|(since, _)| *since);
        let mut count = 0;
        for line in text.split_inclusive('\n') {
            count += 1;
            match self.waiting.pop_front() {
                Some((_, expected)) if expected == line => {}
                expected => return Err(format!("relayed {text:?}, not {expected:?}")),
            }
        }
        if length > self.packet_length && count > 1 {
            return Err(format!("a datagram of {length} bytes"));
        }
        let is_due = since.is_some_and(|since| since + FLUSH_AFTER <= self.now);
        let next = self.waiting.front().map_or(0, |(_, line)| line.len());
        if !is_due
            && length < self.packet_length
            && (next == 0 || length + next <= self.packet_length)
        {
            return Err(format!("a datagram of {length} bytes does not wait for more lines"));
        }
        self.arrived.push_back((self.now, count));
        Ok(())
    }

    /// No line waits for longer than its time.
    fn check_waiting(&self) -> Result<(), String> {
        let after = if self.packet_length == 0 { Duration::ZERO } else { FLUSH_AFTER };
        match self.waiting.front() {
            Some((since, line)) if *since + after <= self.now => {
                Err(format!("{line:?} of {since:?} is not relayed at {:?}", self.now))
            }
            _ => Ok(()),
        }
    }

    /// Begins or ends to refuse datagrams: a connected socket accepts those of one peer only. Or the target moves.
    fn change(&mut self) {
        if let Some(relay) = self.relay.filter(|_| self.rng.u32(0..6) == 0) {
            // The relay is bound to all addresses.
            let relay = SocketAddr::from(([127, 0, 0, 1], relay.port()));
            self.refuses = !self.refuses;
            let peer = if self.refuses { NOBODY.into() } else { relay };
            self.socket.connect(peer).expect("connected");
        }
        if let Some(moves) = &mut self.moves
            && moves.rng.u32(0..12) == 0
        {
            let former = std::mem::replace(&mut self.socket, socket());
            former.connect(SocketAddr::from(NOBODY)).expect("connected");
            moves.former.push(former);
            (moves.moved, moves.known_at, moves.refused) = (Some(self.now), None, None);
            (self.relay, self.refuses) = (None, false);
        }
    }

    /// Returns the possible numbers of lines that count as relayed: those that arrived a while ago do, later ones may.
    fn relayed(&mut self) -> [usize; 2] {
        while let Some((at, lines)) = self.arrived.front()
            && *at + CONFIRM_AFTER <= self.now
        {
            self.counts[0] += lines;
            self.arrived.pop_front();
        }
        let last: usize = self.arrived.iter().map(|(_, lines)| lines).sum();
        [self.counts[0], self.counts[0] + last]
    }
}

impl Moves {
    /// Gives the target a name, in one of two histories.
    fn start(seed: u64, sender: &mut RelaySender) -> Option<Self> {
        let mut rng = Rng::with_seed(seed ^ 0x9b05_688c_2b3e_6c1f);
        if rng.bool() {
            return None;
        }
        let (asks, asked) = channel();
        sender.lookup.resolve_with(move |_, answer| asks.send(answer).map_err(io::Error::other));
        Some(Self {
            rng,
            asked,
            running: None,
            asked_at: None,
            pauses: [MIN_PAUSE; 2],
            arrives_since: None,
            recovered: None,
            recovered_at: None,
            former: Vec::new(),
            moved: None,
            known_at: None,
            refused: None,
        })
    }

    /// Answers the look-up that is running if it is time: with the address of this moment, or an error.
    fn answer(&mut self, now: Duration, address: SocketAddr) {
        let Some((at, answer)) = self.running.take_if(|(at, _)| *at <= now) else { return };
        if self.rng.u32(0..4) == 0 {
            drop(answer.send(Err(io::Error::other("no such name"))));
            return;
        }
        answer.send(Ok(address)).expect("asked");
        self.known_at = Some(at.max(now));
    }

    /// Notes a look-up: there is one at a time, and a pause between them.
    fn note_asked(&mut self, now: Duration) -> Result<(), String> {
        while let Ok(answer) = self.asked.try_recv() {
            let is_early = self.asked_at.is_some_and(|at| now < at + MIN_PAUSE);
            if is_early || self.running.is_some() {
                return Err(format!("look-ups at {:?} and {now:?}", self.asked_at));
            }
            let millis = if self.rng.bool() { 0..100 } else { 0..20_000 };
            let delay = Duration::from_millis(self.rng.u64(millis));
            (self.asked_at, self.running) = (Some(now), Some((now + delay, answer)));
            let [_, pause] = self.pauses;
            self.pauses = [pause, (2 * pause).min(MAX_PAUSE)];
        }
        Ok(())
    }

    /// Notes that datagrams have arrived. Each counts as relayed within [`CONFIRM_AFTER`], and once the first and the last ones that do
    /// are far enough apart, the relay has recovered.
    fn arrived(&mut self, now: Duration) {
        self.refused = None;
        let since = *self.arrives_since.get_or_insert(now);
        if since + CONFIRM_AFTER + RECOVERED_AFTER <= now {
            self.recovered.get_or_insert(now + CONFIRM_AFTER);
        }
    }

    /// Notes that the relay has recovered by now, if it has: the pauses are short again.
    fn note_recovery(&mut self, now: Duration) {
        if self.recovered.take_if(|at| *at < now).is_some() {
            self.pauses = [MIN_PAUSE; 2];
            self.recovered_at = Some(now);
        }
    }

    /// Notes that a datagram was refused. If the one before was refused, too, the relay has looked the target up in between or does so
    /// now, unless it was waiting for an answer or the pause after the last look-up is not over.
    fn refused(&mut self, now: Duration) -> Result<(), String> {
        (self.arrives_since, self.recovered) = (None, None);
        let [pause, _] = self.pauses;
        if let Some((before, was_running)) = self.refused
            && !was_running
            && self.asked_at.is_none_or(|at| at + pause <= now)
            && self.recovered_at.is_none_or(|at| at + MIN_PAUSE <= now)
        {
            return Err(format!(
                "datagrams are refused since {before:?}, but the last look-up was at {:?}, which is followed by a pause of {pause:?}",
                self.asked_at
            ));
        }
        self.refused = Some((now, self.running.is_some()));
        Ok(())
    }
}

impl History {
    /// Sends lines that a rule drops, while the thread of the relay does not run: more than its queue holds, twice.
    pub(super) fn lines_beyond_queue(&mut self) -> Result<(), String> {
        let line = format!("drop.{}:1|c", "x".repeat(1_300));
        let count = 2 * QUEUE_BYTES / line.len();
        (0..count).for_each(|_| drop(self.offline.line(line.as_bytes())));
        self.outcome.lines += count;
        self.trace("lines", line.as_bytes());
        let Some(relay) = &mut self.relay else { return Ok(()) };
        relay.note_overflow(&line, count);
        relay.sent(&[])
    }

    /// Compares the counters of the relay with the lines that have arrived.
    pub(super) fn check_relay(&mut self) -> Result<(), String> {
        let Some(target) = &mut self.relay else { return Ok(()) };
        let relayed = target.relayed();
        let ([_, dropped, long], refuses) = (target.counts, target.refuses);
        let moved = target.moves.as_ref().is_some_and(|moves| moves.moved.is_some());
        target.change();
        let own: Vec<u8> = self.offline.self_metrics().flatten().collect();
        let own = String::from_utf8_lossy(&own);
        let count = |family: &str| {
            let line = own.lines().find_map(|line| line.strip_prefix(family));
            line.and_then(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok())
        };
        let counts = [
            "statsd_exporter_relay_lines_relayed_total{",
            "kstatd_statsd_relay_dropped_lines_total{",
            "statsd_exporter_relay_long_lines_total{",
        ];
        let counts = counts.map(count);
        let are_right =
            matches!(counts[0], Some(count) if relayed[0] <= count && count <= relayed[1]);
        if !are_right || counts[1..] != [Some(dropped), Some(long)] {
            return Err(format!(
                "lines relayed, dropped, too long: {counts:?}, not {relayed:?}, {dropped}, {long}"
            ));
        }
        self.used(if refuses { Feature::RelayRefused } else { Feature::Relay });
        if moved {
            self.used(Feature::RelayMoved);
        }
        Ok(())
    }
}
