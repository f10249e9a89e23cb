//! The flags of the StatsD side, compatible with statsd_exporter.

use tracing::Level;

use super::flag::{Text, ValueType, flags, kinds, store};
use super::limits::{self, FoldValue, LimitMode};
use super::usage_error::UsageError;
use crate::exposition::budget::{Budget, BudgetMode};
use crate::go::strconv;
use crate::pods::Selection;
use crate::statsd::line::ParserFlags;

/// Parses kingpin's `Int`: a float, truncated towards zero.
fn int(text: &str) -> Result<i64, UsageError> {
    // Casts saturate, which is the desired result for `inf`.
    Ok(strconv::parse_float(text)? as i64)
}

/// Parses a non-negative count; the original crashes on a negative one.
fn count(text: &str) -> Result<i64, UsageError> {
    match int(text)? {
        number if number < 0 => Err(format!("value {text} must not be negative").into()),
        number => Ok(number),
    }
}

kinds! {
    /// A boolean.
    Toggle: bool = false, ValueType::Toggle, |text, into| {
        *into = text == "true";
        Ok(())
    };
    /// An integer, as parsed by kingpin.
    WholeNumber: i64 = 0, ValueType::Text("string"), |text, into| store(into, int(text));
    /// A non-negative integer, as parsed by kingpin.
    Count: i64 = 0, ValueType::Text("string"), |text, into| store(into, count(text));
    /// A non-negative integer, as parsed by Go.
    Unsigned: u64 = 0, ValueType::Text("string"), |text, into| store(into, strconv::parse_uint(text));
    /// The path of the metrics.
    TelemetryPath: String = String::new(), ValueType::Text("string"),
        |text, into| store(into, telemetry_path(text));
    /// The type of the mapping cache.
    CacheType: String = String::new(), ValueType::OneOf(&["lru", "random"]),
        |text, into| {
            *into = text.to_owned();
            Ok(())
        };
    /// A positive duration, in nanoseconds.
    FlushInterval: i64 = 0, ValueType::Text("string"), |text, into| store(into, flush_interval(text));
    /// A duration in nanoseconds; 0 disables the timeout.
    IdleTimeout: i64 = 0, ValueType::Text("string"), |text, into| store(into, idle_timeout(text));
    /// A number of sockets.
    Sockets: i64 = 1, ValueType::Text("string"), |text, into| store(into, udp_sockets(text));
    /// The labels of senders.
    PodLabels: Selection = Selection::default(), ValueType::Text("string"),
        |text, into| store(into, Selection::parse(text));
    /// A number of bytes.
    Bytes: u64 = 0, ValueType::Text("string"), |text, into| store(into, limits::bytes(text));
    /// A log level.
    LogLevel: Level = Level::INFO, ValueType::Text("string"), |text, into| store(into, level(text));
    /// The log format: whether it is JSON.
    LogFormat: bool = false, ValueType::Text("string"), |text, into| store(into, format(text));
}

flags! {
    /// The flag values.
    #[derive(Clone, Debug, PartialEq)]
    pub struct StatsdArgs {}

    /// All flags, in the order of the help.
    FLAGS {
        web_listen_address: Text, "web.listen-address", "\":9102\"",
            "Address to serve the web pages and metrics on.";
        web_enable_lifecycle: Toggle, "web.enable-lifecycle", "",
            "Allow reload and shutdown over HTTP.";
        web_telemetry_path: TelemetryPath, "web.telemetry-path", "\"/metrics\"",
            "Path to serve metrics on.";
        listen_udp: Text, "statsd.listen-udp", "\":9125\"",
            "UDP address to receive StatsD lines on; \"\" disables it.";
        listen_tcp: Text, "statsd.listen-tcp", "\":9125\"",
            "TCP address to receive StatsD lines on; \"\" disables it.";
        listen_unixgram: Text, "statsd.listen-unixgram", "\"\"",
            "Path of a Unix datagram socket to receive StatsD lines on; \"\" disables it.";
        unixsocket_mode: Text, "statsd.unixsocket-mode", "\"755\"",
            "Mode of that socket, octal.";
        mapping_config: Text, "statsd.mapping-config", "",
            "Path of the mapping file.";
        read_buffer: WholeNumber, "statsd.read-buffer", "",
            "Receive buffer of the UDP and Unix sockets in bytes; 0 means 16 MiB. Without CAP_NET_ADMIN it is limited to net.core.rmem_max.";
        cache_size: Count, "statsd.cache-size", "1000",
            "Accepted for compatibility, no effect: a line is mapped once and remembered with its series.";
        cache_type: CacheType, "statsd.cache-type", "lru",
            "Accepted for compatibility, no effect; \"lru\" or \"random\".";
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
            "UDP target (host:port) to relay every line to.";
        relay_packet_length: Unsigned, "statsd.relay.packet-length", "1400",
            "Largest datagram to the relay target in bytes.";
        udp_packet_queue_size: Count, "statsd.udp-packet-queue-size", "10000",
            "Accepted for compatibility: datagrams wait in the receive buffer of the socket.";
        log_level: LogLevel, "log.level", "info",
            "Minimum log level: debug, info, warn or error.";
        log_json: LogFormat, "log.format", "logfmt",
            "Log format: logfmt or json.";
        udp_sockets: Sockets, "statsd.udp-sockets", "1",
            "UDP sockets that share the address, each with a thread. With more than 1, lines from different senders are applied in any order.";
        tcp_idle_timeout: IdleTimeout, "statsd.tcp-idle-timeout", "0s",
            "Close a TCP connection that is silent for this long; 0 means never. When file descriptors run out, the connections silent longest are closed in any case.";
        web_config_file: Text, "web.config.file", "\"\"",
            "File with TLS certificates, users and headers of the web server, in the format of the Prometheus exporter toolkit.";
        sets: Toggle, "statsd.sets", "",
            "Count the distinct values of sets (type s), estimated. Off by default: statsd_exporter refuses sets.";
        enrich: PodLabels, "statsd.enrich", "",
            "Add labels of the pod that sent a line: workload (namespace, workload and workload_type), or a list of namespace, node, pod, workload and workload_type. Only in kstatd run.";
        openmetrics_created: Toggle, "openmetrics.created", "",
            "Write the start times of StatsD series as samples x_created in OpenMetrics. Off by default: such samples are series of their own to most scrapers, and protobuf always has start times.";
        limit_mode: LimitMode, "limit.mode", "",
            "Action when a budget is exceeded: enforce (fold counters, histograms and summaries with exact totals, reject gauges), track (only count) or off. Defaults to enforce in kstatd run, off under the originals' names.";
        limit_series: Unsigned, "limit.series", "1000000",
            "Maximum total number of series, counted as in a scrape; 0 means no limit.";
        limit_series_per_metric: Unsigned, "limit.series-per-metric", "100000",
            "Maximum number of series per metric; further label sets go to {otel_metric_overflow=\"true\"}. 0 means no limit.";
        limit_values_per_label: Unsigned, "limit.values-per-label", "10000",
            "Maximum number of distinct values per label of a metric; further ones become --limit.fold-value. 0 means no limit.";
        limit_memory: Bytes, "limit.memory", "0",
            "Maximum memory of all series, in bytes or with suffix Ki, Mi or Gi; 0 means no limit.";
        limit_fold_value: FoldValue, "limit.fold-value", "\"other\"",
            "Label value that replaces values over budget.";
    }
}

impl StatsdArgs {
    /// Returns true if there is a listener.
    pub(crate) fn listens(&self) -> bool {
        [&self.listen_udp, &self.listen_tcp, &self.listen_unixgram]
            .iter()
            .any(|one| !one.is_empty())
    }

    /// Returns true if the objects are needed by which senders are recognised.
    pub(crate) fn recognises_senders(&self) -> bool {
        !self.enrich.is_empty() && self.listens()
    }

    /// Returns the parser options.
    pub fn parser_flags(&self) -> ParserFlags {
        ParserFlags {
            dogstatsd: self.parse_dogstatsd_tags,
            influxdb: self.parse_influxdb_tags,
            librato: self.parse_librato_tags,
            signalfx: self.parse_signalfx_tags,
            sets: self.sets,
            origins: !self.enrich.is_empty(),
        }
    }

    /// Returns the budgets. `mode` is the default action under the current name of the program.
    pub fn budget(&self, mode: BudgetMode) -> Budget {
        Budget {
            mode: self.limit_mode.unwrap_or(mode),
            series: self.limit_series,
            series_per_metric: self.limit_series_per_metric,
            // Applies to Kubernetes objects only.
            series_per_kind: 0,
            values_per_label: self.limit_values_per_label,
            value_bytes: limits::TEXT_BYTES,
            name_bytes: limits::TEXT_BYTES,
            memory: self.limit_memory,
            fold_value: self.limit_fold_value.clone(),
        }
    }
}

/// Parses a path, or `GET ` and a path as in Go's `ServeMux`.
fn telemetry_path(text: &str) -> Result<String, UsageError> {
    let path = text.strip_prefix("GET ").map_or(text, str::trim_start);
    if !path.starts_with('/') {
        return Err(format!("telemetry path \"{text}\" must begin with /").into());
    }
    if matches!(path, "/-/healthy" | "/-/ready") {
        return Err(format!("telemetry path \"{text}\" is taken by the lifecycle API").into());
    }
    if path.contains([' ', '\t']) {
        return Err(format!("telemetry path \"{text}\" must not contain blanks").into());
    }
    Ok(text.to_owned())
}

/// Validates combinations of flags.
///
/// # Errors
///
/// When the metrics path conflicts with the lifecycle API.
pub fn check(args: &StatsdArgs) -> Result<(), UsageError> {
    let text = &args.web_telemetry_path;
    let path = text.strip_prefix("GET ").map_or(text.as_str(), str::trim_start);
    if args.web_enable_lifecycle && matches!(path, "/-/reload" | "/-/quit") {
        return Err(format!(
            "flag '--web.telemetry-path': telemetry path \"{text}\" is taken by the lifecycle API"
        )
        .into());
    }
    Ok(())
}

fn flush_interval(text: &str) -> Result<i64, UsageError> {
    match strconv::parse_long_duration(text)? {
        nanos if nanos <= 0 => Err(format!("interval {text} must be greater than 0").into()),
        nanos => Ok(nanos),
    }
}

/// The maximum number of UDP sockets: one per thread of a large host.
const MAX_SOCKETS: i64 = 256;

fn udp_sockets(text: &str) -> Result<i64, UsageError> {
    match text.parse() {
        Ok(number @ 1..=MAX_SOCKETS) => Ok(number),
        _ => Err(format!("value {text:?} must be a whole number from 1 to {MAX_SOCKETS}").into()),
    }
}

fn idle_timeout(text: &str) -> Result<i64, UsageError> {
    match strconv::parse_long_duration(text)? {
        nanos if nanos < 0 => Err(format!("timeout {text} must not be negative").into()),
        nanos => Ok(nanos),
    }
}

fn level(text: &str) -> Result<Level, UsageError> {
    match text.to_ascii_lowercase().as_str() {
        "debug" => Ok(Level::DEBUG),
        "info" => Ok(Level::INFO),
        "warn" => Ok(Level::WARN),
        "error" => Ok(Level::ERROR),
        _ => Err(format!("unrecognized log level {text}").into()),
    }
}

fn format(text: &str) -> Result<bool, UsageError> {
    match text {
        "logfmt" => Ok(false),
        "json" => Ok(true),
        _ => Err(format!("unrecognized log format {text}").into()),
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
    fn sockets_and_timeouts_are_range_checked() {
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
            ("limit.fold-value", ""),
            ("limit.memory", "1K"),
            ("limit.memory", "-1"),
            ("limit.memory", "99999999999Gi"),
            ("limit.series", "1e3"),
            ("statsd.udp-sockets", "0"),
            ("statsd.udp-sockets", "-1"),
            ("statsd.udp-sockets", "257"),
            ("statsd.udp-sockets", "x"),
            ("statsd.udp-sockets", "1.5"),
            ("statsd.tcp-idle-timeout", "-1s"),
            ("statsd.tcp-idle-timeout", "10"),
        ] {
            assert!(set(name, text).is_err(), "{name}={text}");
        }
        let reason = "value \"x\" must be a whole number from 1 to 256";
        assert_eq!(set("statsd.udp-sockets", "x"), Err(reason.into()));
    }

    #[test]
    fn budget_defaults_depend_on_the_program_name() {
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
