//! The flags of the StatsD side, with the names, defaults and value syntax of statsd_exporter.

use tracing::Level;

use super::flag::{Flag, Takes};
use crate::go::strconv;

/// What the flags say.
#[derive(Clone, Debug, PartialEq)]
pub struct StatsdArgs {
    /// `--web.listen-address`
    pub web_listen_address: String,
    /// `--web.enable-lifecycle`
    pub web_enable_lifecycle: bool,
    /// `--web.telemetry-path`
    pub web_telemetry_path: String,
    /// `--statsd.listen-udp`, empty is off
    pub listen_udp: String,
    /// `--statsd.listen-tcp`, empty is off
    pub listen_tcp: String,
    /// `--statsd.udp-sockets`
    pub udp_sockets: i64,
    /// `--statsd.tcp-idle-timeout` in nanoseconds, 0 is none
    pub tcp_idle_timeout: i64,
    /// `--statsd.listen-unixgram`, empty is off
    pub listen_unixgram: String,
    /// `--statsd.unixsocket-mode`, octal text
    pub unixsocket_mode: String,
    /// `--statsd.mapping-config`, empty is none
    pub mapping_config: String,
    /// `--statsd.read-buffer` in bytes
    pub read_buffer: i64,
    /// `--statsd.cache-size`
    pub cache_size: i64,
    /// `--statsd.cache-type`
    pub cache_type: String,
    /// `--statsd.event-queue-size`
    pub event_queue_size: u64,
    /// `--statsd.event-flush-threshold`
    pub event_flush_threshold: i64,
    /// `--statsd.event-flush-interval` in nanoseconds
    pub event_flush_interval: i64,
    /// `--debug.dump-fsm`, empty is none
    pub dump_fsm: String,
    /// `--check-config`
    pub check_config: bool,
    /// `--statsd.parse-dogstatsd-tags`
    pub parse_dogstatsd_tags: bool,
    /// `--statsd.parse-influxdb-tags`
    pub parse_influxdb_tags: bool,
    /// `--statsd.parse-librato-tags`
    pub parse_librato_tags: bool,
    /// `--statsd.parse-signalfx-tags`
    pub parse_signalfx_tags: bool,
    /// `--statsd.relay.address`, empty is none
    pub relay_address: String,
    /// `--statsd.relay.packet-length` in bytes
    pub relay_packet_length: u64,
    /// `--statsd.udp-packet-queue-size`
    pub udp_packet_queue_size: i64,
    /// `--log.level`
    pub log_level: Level,
    /// `--log.format` is json
    pub log_json: bool,
    /// `--statsd.sets`
    pub sets: bool,
}

impl Default for StatsdArgs {
    fn default() -> Self {
        Self {
            web_listen_address: ":9102".to_owned(),
            web_enable_lifecycle: false,
            web_telemetry_path: "/metrics".to_owned(),
            listen_udp: ":9125".to_owned(),
            listen_tcp: ":9125".to_owned(),
            udp_sockets: 1,
            tcp_idle_timeout: 0,
            listen_unixgram: String::new(),
            unixsocket_mode: "755".to_owned(),
            mapping_config: String::new(),
            read_buffer: 0,
            cache_size: 1000,
            cache_type: "lru".to_owned(),
            event_queue_size: 10_000,
            event_flush_threshold: 1000,
            event_flush_interval: 200_000_000,
            dump_fsm: String::new(),
            check_config: false,
            parse_dogstatsd_tags: true,
            parse_influxdb_tags: true,
            parse_librato_tags: true,
            parse_signalfx_tags: true,
            relay_address: String::new(),
            relay_packet_length: 1400,
            udp_packet_queue_size: 10_000,
            log_level: Level::INFO,
            log_json: false,
            sets: false,
        }
    }
}

type Set = fn(&mut StatsdArgs, &str) -> Result<(), String>;

const fn switch(name: &'static str, help: &'static str, set: Set) -> Flag<StatsdArgs> {
    Flag { name, short: None, takes: Takes::Nothing, default: "", help, set }
}

const fn value(
    name: &'static str,
    default: &'static str,
    help: &'static str,
    set: Set,
) -> Flag<StatsdArgs> {
    Flag { name, short: None, takes: Takes::Value("string"), default, help, set }
}

/// A flag whose setter cannot fail.
macro_rules! keep {
    ($args:ident, $text:ident, $statement:expr) => {
        |$args, $text| {
            $statement;
            Ok(())
        }
    };
}

/// The integer syntax of kingpin's `Int`: a float, truncated towards zero.
fn int(text: &str) -> Result<i64, String> {
    // A cast of a float saturates, which is what is wanted of `inf`.
    strconv::parse_float(text).map(|number| number as i64)
}

/// A count for which a negative number has no meaning; the original crashes on it.
fn count(text: &str) -> Result<i64, String> {
    match int(text)? {
        number if number < 0 => Err(format!("value {text} must not be negative")),
        number => Ok(number),
    }
}

/// Every flag in the order of the help.
pub const FLAGS: &[Flag<StatsdArgs>] = &[
    value(
        "web.listen-address",
        "\":9102\"",
        "Address to serve the web pages and metrics on.",
        keep!(args, text, args.web_listen_address = text.to_owned()),
    ),
    switch(
        "web.enable-lifecycle",
        "Allow reload and shutdown over HTTP.",
        keep!(args, text, args.web_enable_lifecycle = text == "true"),
    ),
    value("web.telemetry-path", "\"/metrics\"", "Path to serve metrics on.", |args, text| {
        telemetry_path(text).map(|path| args.web_telemetry_path = path)
    }),
    value(
        "statsd.listen-udp",
        "\":9125\"",
        "UDP address to receive StatsD lines on; \"\" turns it off.",
        keep!(args, text, args.listen_udp = text.to_owned()),
    ),
    value(
        "statsd.listen-tcp",
        "\":9125\"",
        "TCP address to receive StatsD lines on; \"\" turns it off.",
        keep!(args, text, args.listen_tcp = text.to_owned()),
    ),
    value(
        "statsd.listen-unixgram",
        "\"\"",
        "Path of a Unix datagram socket to receive StatsD lines on; \"\" turns it off.",
        keep!(args, text, args.listen_unixgram = text.to_owned()),
    ),
    value(
        "statsd.unixsocket-mode",
        "\"755\"",
        "Mode of that socket, octal.",
        keep!(args, text, args.unixsocket_mode = text.to_owned()),
    ),
    value(
        "statsd.mapping-config",
        "",
        "Path of the mapping file.",
        keep!(args, text, args.mapping_config = text.to_owned()),
    ),
    value(
        "statsd.read-buffer",
        "",
        "Receive buffer of the UDP and Unix sockets in bytes; 0 is 16 MiB. Without CAP_NET_ADMIN the system gives no more than net.core.rmem_max.",
        |args, text| int(text).map(|size| args.read_buffer = size),
    ),
    value(
        "statsd.cache-size",
        "1000",
        "Entries of the mapping cache. Accepted for compatibility: mapping is done once for each series.",
        |args, text| count(text).map(|size| args.cache_size = size),
    ),
    Flag {
        name: "statsd.cache-type",
        short: None,
        takes: Takes::OneOf(&["lru", "random"]),
        default: "lru",
        help: "Kind of the mapping cache, \"lru\" or \"random\". Accepted for compatibility.",
        set: keep!(args, text, args.cache_type = text.to_owned()),
    },
    value(
        "statsd.event-queue-size",
        "10000",
        "Accepted for compatibility: there is no queue between receiving and counting.",
        |args, text| strconv::parse_uint(text).map(|size| args.event_queue_size = size),
    ),
    value(
        "statsd.event-flush-threshold",
        "1000",
        "Accepted for compatibility: events are counted as they arrive.",
        |args, text| count(text).map(|size| args.event_flush_threshold = size),
    ),
    value(
        "statsd.event-flush-interval",
        "200ms",
        "Accepted for compatibility: events are counted as they arrive.",
        |args, text| flush_interval(text).map(|nanos| args.event_flush_interval = nanos),
    ),
    value(
        "debug.dump-fsm",
        "\"\"",
        "Path of a file to write the matching automaton to, as a dot graph.",
        keep!(args, text, args.dump_fsm = text.to_owned()),
    ),
    switch(
        "check-config",
        "Check the mapping file and exit.",
        keep!(args, text, args.check_config = text == "true"),
    ),
    switch(
        "statsd.parse-dogstatsd-tags",
        "Read tags in DogStatsD style. On by default.",
        keep!(args, text, args.parse_dogstatsd_tags = text == "true"),
    ),
    switch(
        "statsd.parse-influxdb-tags",
        "Read tags in InfluxDB style. On by default.",
        keep!(args, text, args.parse_influxdb_tags = text == "true"),
    ),
    switch(
        "statsd.parse-librato-tags",
        "Read tags in Librato style. On by default.",
        keep!(args, text, args.parse_librato_tags = text == "true"),
    ),
    switch(
        "statsd.parse-signalfx-tags",
        "Read tags in SignalFX style. On by default.",
        keep!(args, text, args.parse_signalfx_tags = text == "true"),
    ),
    value(
        "statsd.relay.address",
        "",
        "UDP target (host:port) that gets a copy of every line.",
        keep!(args, text, args.relay_address = text.to_owned()),
    ),
    value(
        "statsd.relay.packet-length",
        "1400",
        "Largest datagram to the relay target in bytes.",
        |args, text| strconv::parse_uint(text).map(|length| args.relay_packet_length = length),
    ),
    value(
        "statsd.udp-packet-queue-size",
        "10000",
        "Accepted for compatibility: datagrams wait in the receive buffer of the socket.",
        |args, text| count(text).map(|size| args.udp_packet_queue_size = size),
    ),
    value(
        "log.level",
        "info",
        "Least severity that is logged: debug, info, warn or error.",
        |args, text| level(text).map(|level| args.log_level = level),
    ),
    value("log.format", "logfmt", "Form of the log: logfmt or json.", |args, text| {
        format(text).map(|json| args.log_json = json)
    }),
    value(
        "statsd.udp-sockets",
        "1",
        "UDP sockets that share the address, each with a thread. With more than 1, lines from different senders take effect in any order.",
        |args, text| udp_sockets(text).map(|sockets| args.udp_sockets = sockets),
    ),
    value(
        "statsd.tcp-idle-timeout",
        "0s",
        "How long a TCP connection may be silent before it is closed; 0 for any time. Those silent longest are closed in any case when open files run out.",
        |args, text| idle_timeout(text).map(|nanos| args.tcp_idle_timeout = nanos),
    ),
    switch(
        "statsd.sets",
        "Count the distinct values of sets (type s), estimated. Off by default: statsd_exporter refuses sets.",
        keep!(args, text, args.sets = text == "true"),
    ),
];

/// A path, or `GET ` and a path as Go's `ServeMux` understands it.
fn telemetry_path(text: &str) -> Result<String, String> {
    let path = text.strip_prefix("GET ").map_or(text, str::trim_start);
    if !path.starts_with('/') {
        return Err(format!("telemetry path \"{text}\" must begin with /"));
    }
    if matches!(path, "/-/healthy" | "/-/ready") {
        return Err(format!("telemetry path \"{text}\" is taken by the lifecycle API"));
    }
    if path.contains([' ', '\t']) {
        return Err(format!("telemetry path \"{text}\" must not contain blanks"));
    }
    Ok(text.to_owned())
}

/// What can only be said of several flags together.
///
/// # Errors
///
/// When the metrics would take a path of the lifecycle API.
pub fn check(args: &StatsdArgs) -> Result<(), String> {
    let text = &args.web_telemetry_path;
    let path = text.strip_prefix("GET ").map_or(text.as_str(), str::trim_start);
    if args.web_enable_lifecycle && matches!(path, "/-/reload" | "/-/quit") {
        return Err(format!(
            "flag '--web.telemetry-path': telemetry path \"{text}\" is taken by the lifecycle API"
        ));
    }
    Ok(())
}

fn flush_interval(text: &str) -> Result<i64, String> {
    match strconv::parse_long_duration(text)? {
        nanos if nanos <= 0 => Err(format!("interval {text} must be greater than 0")),
        nanos => Ok(nanos),
    }
}

/// Most UDP sockets: one for each thread that a large host has.
const MAX_SOCKETS: i64 = 256;

fn udp_sockets(text: &str) -> Result<i64, String> {
    match int(text)? {
        number @ 1..=MAX_SOCKETS => Ok(number),
        _ => Err(format!("value {text} must be from 1 to {MAX_SOCKETS}")),
    }
}

fn idle_timeout(text: &str) -> Result<i64, String> {
    match strconv::parse_long_duration(text)? {
        nanos if nanos < 0 => Err(format!("timeout {text} must not be negative")),
        nanos => Ok(nanos),
    }
}

fn level(text: &str) -> Result<Level, String> {
    match text.to_ascii_lowercase().as_str() {
        "debug" => Ok(Level::DEBUG),
        "info" => Ok(Level::INFO),
        "warn" => Ok(Level::WARN),
        "error" => Ok(Level::ERROR),
        _ => Err(format!("unrecognized log level {text}")),
    }
}

fn format(text: &str) -> Result<bool, String> {
    match text {
        "logfmt" => Ok(false),
        "json" => Ok(true),
        _ => Err(format!("unrecognized log format {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::flag::find;

    #[test]
    fn defaults_in_the_help_are_the_defaults() {
        for flag in FLAGS.iter().filter(|flag| !flag.default.is_empty()) {
            let mut args = StatsdArgs::default();
            (flag.set)(&mut args, flag.default.trim_matches('"')).expect("valid default");
            assert_eq!(args, StatsdArgs::default(), "--{}", flag.name);
        }
    }

    #[test]
    fn sockets_and_timeouts_have_a_range() {
        let set = |name: &str, text: &str| {
            let mut args = StatsdArgs::default();
            let flag = find(FLAGS, name).expect("flag");
            (flag.set)(&mut args, text).map(|()| (args.udp_sockets, args.tcp_idle_timeout))
        };
        assert_eq!(set("statsd.udp-sockets", "4"), Ok((4, 0)));
        assert_eq!(set("statsd.tcp-idle-timeout", "1m"), Ok((1, 60_000_000_000)));
        assert_eq!(set("statsd.tcp-idle-timeout", "0"), Ok((1, 0)));
        for (name, text) in [
            ("statsd.udp-sockets", "0"),
            ("statsd.udp-sockets", "-1"),
            ("statsd.udp-sockets", "257"),
            ("statsd.udp-sockets", "x"),
            ("statsd.tcp-idle-timeout", "-1s"),
            ("statsd.tcp-idle-timeout", "10"),
        ] {
            assert!(set(name, text).is_err(), "{name}={text}");
        }
    }

    #[test]
    fn integers_are_truncated_floats() {
        let flag = find(FLAGS, "statsd.read-buffer").expect("flag");
        let mut args = StatsdArgs::default();
        for (text, expected) in
            [("1e3", 1000), ("1.9", 1), ("1_000", 1000), ("inf", i64::MAX), ("-1", -1)]
        {
            (flag.set)(&mut args, text).expect(text);
            assert_eq!(args.read_buffer, expected, "{text}");
        }
        assert_eq!(
            (flag.set)(&mut args, "0x10"),
            Err("strconv.ParseFloat: parsing \"0x10\": invalid syntax".into())
        );
    }
}
