//! The flags of the StatsD side, with the names, defaults and value syntax of statsd_exporter.

use tracing::Level;

use super::flag::{Takes, flags, kinds};
use super::limits;
use crate::exposition::budget::{Budget, BudgetMode};
use crate::go::strconv;
use crate::statsd::line::ParserFlags;

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

/// Puts what was read into the field.
fn put<T>(into: &mut T, read: Result<T, String>) -> Result<(), String> {
    read.map(|value| *into = value)
}

kinds! {
    /// Any text.
    Text: String = String::new(), Takes::Value("string"), |text, into| put(into, Ok(text.to_owned()));
    /// A boolean.
    Toggle: bool = false, Takes::Nothing, |text, into| put(into, Ok(text == "true"));
    /// An integer, as kingpin reads it.
    WholeNumber: i64 = 0, Takes::Value("string"), |text, into| put(into, int(text));
    /// An integer that is not negative, as kingpin reads it.
    Count: i64 = 0, Takes::Value("string"), |text, into| put(into, count(text));
    /// An integer that is not negative, as Go reads it.
    Unsigned: u64 = 0, Takes::Value("string"), |text, into| put(into, strconv::parse_uint(text));
    /// The path of the metrics.
    TelemetryPath: String = String::new(), Takes::Value("string"),
        |text, into| put(into, telemetry_path(text));
    /// The kind of a cache.
    CacheType: String = String::new(), Takes::OneOf(&["lru", "random"]),
        |text, into| put(into, Ok(text.to_owned()));
    /// A duration above 0, in nanoseconds.
    FlushInterval: i64 = 0, Takes::Value("string"), |text, into| put(into, flush_interval(text));
    /// A duration, in nanoseconds; 0 is none.
    IdleTimeout: i64 = 0, Takes::Value("string"), |text, into| put(into, idle_timeout(text));
    /// A number of sockets.
    Sockets: i64 = 1, Takes::Value("string"), |text, into| put(into, udp_sockets(text));
    /// What happens beyond a budget; without it the name of the program decides.
    LimitMode: Option<BudgetMode> = None, Takes::Value("string"), |text, into| put(into, limits::mode(text));
    /// A number of bytes.
    Bytes: u64 = 0, Takes::Value("string"), |text, into| put(into, limits::bytes(text));
    /// A severity.
    LogLevel: Level = Level::INFO, Takes::Value("string"), |text, into| put(into, level(text));
    /// The form of the log; whether it is JSON.
    LogFormat: bool = false, Takes::Value("string"), |text, into| put(into, format(text));
}

flags! {
    /// What the flags say.
    #[derive(Clone, Debug, PartialEq)]
    pub struct StatsdArgs {}

    /// Every flag in the order of the help.
    FLAGS {
        web_listen_address: Text, "web.listen-address", "\":9102\"",
            "Address to serve the web pages and metrics on.";
        web_enable_lifecycle: Toggle, "web.enable-lifecycle", "",
            "Allow reload and shutdown over HTTP.";
        web_telemetry_path: TelemetryPath, "web.telemetry-path", "\"/metrics\"",
            "Path to serve metrics on.";
        listen_udp: Text, "statsd.listen-udp", "\":9125\"",
            "UDP address to receive StatsD lines on; \"\" turns it off.";
        listen_tcp: Text, "statsd.listen-tcp", "\":9125\"",
            "TCP address to receive StatsD lines on; \"\" turns it off.";
        listen_unixgram: Text, "statsd.listen-unixgram", "\"\"",
            "Path of a Unix datagram socket to receive StatsD lines on; \"\" turns it off.";
        unixsocket_mode: Text, "statsd.unixsocket-mode", "\"755\"",
            "Mode of that socket, octal.";
        mapping_config: Text, "statsd.mapping-config", "",
            "Path of the mapping file.";
        read_buffer: WholeNumber, "statsd.read-buffer", "",
            "Receive buffer of the UDP and Unix sockets in bytes; 0 is 16 MiB. Without CAP_NET_ADMIN the system gives no more than net.core.rmem_max.";
        cache_size: Count, "statsd.cache-size", "1000",
            "Entries of the mapping cache. Accepted for compatibility: mapping is done once for each series.";
        cache_type: CacheType, "statsd.cache-type", "lru",
            "Kind of the mapping cache, \"lru\" or \"random\". Accepted for compatibility.";
        event_queue_size: Unsigned, "statsd.event-queue-size", "10000",
            "Accepted for compatibility: there is no queue between receiving and counting.";
        event_flush_threshold: Count, "statsd.event-flush-threshold", "1000",
            "Accepted for compatibility: events are counted as they arrive.";
        event_flush_interval: FlushInterval, "statsd.event-flush-interval", "200ms",
            "Accepted for compatibility: events are counted as they arrive.";
        dump_fsm: Text, "debug.dump-fsm", "\"\"",
            "Path of a file to write the matching automaton to, as a dot graph.";
        check_config: Toggle, "check-config", "",
            "Check the mapping file and exit.";
        parse_dogstatsd_tags: Toggle, "statsd.parse-dogstatsd-tags", "true",
            "Read tags in DogStatsD style. On by default.";
        parse_influxdb_tags: Toggle, "statsd.parse-influxdb-tags", "true",
            "Read tags in InfluxDB style. On by default.";
        parse_librato_tags: Toggle, "statsd.parse-librato-tags", "true",
            "Read tags in Librato style. On by default.";
        parse_signalfx_tags: Toggle, "statsd.parse-signalfx-tags", "true",
            "Read tags in SignalFX style. On by default.";
        relay_address: Text, "statsd.relay.address", "",
            "UDP target (host:port) that gets a copy of every line.";
        relay_packet_length: Unsigned, "statsd.relay.packet-length", "1400",
            "Largest datagram to the relay target in bytes.";
        udp_packet_queue_size: Count, "statsd.udp-packet-queue-size", "10000",
            "Accepted for compatibility: datagrams wait in the receive buffer of the socket.";
        log_level: LogLevel, "log.level", "info",
            "Least severity that is logged: debug, info, warn or error.";
        log_json: LogFormat, "log.format", "logfmt",
            "Form of the log: logfmt or json.";
        udp_sockets: Sockets, "statsd.udp-sockets", "1",
            "UDP sockets that share the address, each with a thread. With more than 1, lines from different senders take effect in any order.";
        tcp_idle_timeout: IdleTimeout, "statsd.tcp-idle-timeout", "0s",
            "How long a TCP connection may be silent before it is closed; 0 for any time. Those silent longest are closed in any case when open files run out.";
        web_config_file: Text, "web.config.file", "\"\"",
            "File with TLS certificates, users and headers of the web server, in the format of the Prometheus exporter toolkit.";
        sets: Toggle, "statsd.sets", "",
            "Count the distinct values of sets (type s), estimated. Off by default: statsd_exporter refuses sets.";
        limit_mode: LimitMode, "limit.mode", "",
            "What happens to series beyond a budget: enforce (counters, histograms and summaries fold with exact totals, gauges are refused), track (they are counted only) or off. enforce in kstatd run, off under the originals' names.";
        limit_series: Unsigned, "limit.series", "1000000",
            "Most series in all, counted as a scrape shows them; 0 is no limit.";
        limit_series_per_metric: Unsigned, "limit.series-per-metric", "100000",
            "Most series of one metric; further label sets go to {otel_metric_overflow=\"true\"}. 0 is no limit.";
        limit_values_per_label: Unsigned, "limit.values-per-label", "10000",
            "Most different values of one label of a metric; further ones become --limit.fold-value. 0 is no limit.";
        limit_value_bytes: Bytes, "limit.value-bytes", "1Ki",
            "Longest label value; longer ones become --limit.fold-value. 0 is no limit.";
        limit_name_bytes: Bytes, "limit.name-bytes", "1Ki",
            "Longest name of a metric or label; lines with longer ones are refused. 0 is no limit.";
        limit_memory: Bytes, "limit.memory", "0",
            "Most memory of all series, in bytes or with Ki, Mi or Gi; 0 is no limit.";
        limit_fold_value: Text, "limit.fold-value", "\"other\"",
            "The label value that stands for those beyond a budget.";
    }
}

impl StatsdArgs {
    /// What the flags switch on of the grammar.
    pub fn parser_flags(&self) -> ParserFlags {
        ParserFlags {
            dogstatsd: self.parse_dogstatsd_tags,
            influxdb: self.parse_influxdb_tags,
            librato: self.parse_librato_tags,
            signalfx: self.parse_signalfx_tags,
            sets: self.sets,
        }
    }

    /// The budgets. `mode` is what the name of the program has unless a flag says otherwise.
    pub fn budget(&self, mode: BudgetMode) -> Budget {
        Budget {
            mode: self.limit_mode.unwrap_or(mode),
            series: self.limit_series,
            series_per_metric: self.limit_series_per_metric,
            // Of Kubernetes objects alone.
            series_per_kind: 0,
            values_per_label: self.limit_values_per_label,
            value_bytes: self.limit_value_bytes,
            name_bytes: self.limit_name_bytes,
            memory: self.limit_memory,
            fold_value: self.limit_fold_value.clone(),
        }
    }
}

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
    fn every_default_is_a_valid_value() {
        for flag in FLAGS.iter().filter(|flag| !flag.default.is_empty()) {
            let set = (flag.set)(&mut StatsdArgs::default(), flag.default.trim_matches('"'));
            assert_eq!(set, Ok(()), "--{}", flag.name);
        }
        let args = StatsdArgs::default();
        assert_eq!((args.listen_udp.as_str(), args.cache_size), (":9125", 1000));
        assert_eq!((args.parse_librato_tags, args.sets, args.udp_sockets), (true, false, 1));
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
            ("limit.mode", "on"),
            ("limit.mode", ""),
            ("limit.memory", "1K"),
            ("limit.memory", "-1"),
            ("limit.memory", "99999999999Gi"),
            ("limit.series", "1e3"),
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
    fn budgets_have_defaults_and_a_mode_by_name() {
        let mut args = StatsdArgs::default();
        let budget = args.budget(BudgetMode::Enforce);
        assert_eq!((budget.mode, budget.series), (BudgetMode::Enforce, 1_000_000));
        assert_eq!((budget.value_bytes, budget.fold_value.as_str()), (1_024, "other"));
        for (name, text) in [("limit.mode", "track"), ("limit.memory", "2Gi")] {
            (find(FLAGS, name).expect("flag").set)(&mut args, text).expect(text);
        }
        let budget = args.budget(BudgetMode::Enforce);
        assert_eq!((budget.mode, budget.memory), (BudgetMode::Track, 2 << 30));
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
