//! The `kstatd demo` command: runs against a simulated cluster.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::process::block_on;
use super::{personality, run};
use crate::cli::config;
use crate::cli::native::{DemoArgs, LogArgs, RunArgs};
use crate::cli::shared::LogStyle;
use crate::server::listen::{ListenAddress, resolve};
use crate::tools::CommandError;
use crate::tools::demo::{Addresses, Demo};

/// Runs the demo until a signal ends it.
///
/// # Errors
/// Returns the reason why it cannot start, such as a port in use.
pub fn main(args: &DemoArgs) -> Result<(), CommandError> {
    let log = LogArgs { log_format: LogStyle::Text, log_level: args.log_level };
    crate::telemetry::log::init(config::own_log(&log));
    let addresses = Addresses {
        metrics: reachable("--listen", &args.listen)?,
        telemetry: reachable("--telemetry-listen", &args.telemetry_listen)?,
        statsd: reachable("--statsd-listen", &args.statsd_listen)?,
    };
    block_on(async |guard| {
        let demo = Demo::start(args)
            .await
            .map_err(|error| format!("cannot start the simulated cluster: {error}"))?;
        let ordinary = run_args(args, &log, demo.api_server());
        tokio::select! {
            biased;
            outcome = run::run(personality::kstatd(&ordinary), guard) => outcome,
            shown = demo.show(addresses) => {
                shown.map_err(|error| format!("cannot send StatsD lines: {error}").into())
            }
        }
    })
}

/// Returns the equivalent flags of `kstatd run`.
fn run_args(args: &DemoArgs, log: &LogArgs, api_server: String) -> RunArgs {
    let mut run = RunArgs {
        listen: args.listen.clone(),
        telemetry_listen: args.telemetry_listen.clone(),
        log: log.clone(),
        ..RunArgs::default()
    };
    run.kube.0.apiserver = api_server;
    run.statsd.0.listen_udp.clone_from(&args.statsd_listen);
    run.statsd.0.listen_tcp.clone_from(&args.statsd_listen);
    run
}

/// Returns an address for connecting to a listener from this host.
fn reachable(flag: &str, text: &str) -> Result<SocketAddr, CommandError> {
    let fault = |reason: &dyn std::fmt::Display| format!("{flag}={text}: {reason}");
    let ListenAddress { host, port } = ListenAddress::parse(text).map_err(|error| fault(&error))?;
    if port == 0 {
        return Err(fault(&"the demo needs a fixed port").into());
    }
    let host = if host.is_empty() { Ipv4Addr::LOCALHOST.to_string() } else { host };
    let mut address = resolve(&host, port).map_err(|error| fault(&error))?;
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => {
            address.set_ip(Ipv4Addr::LOCALHOST.into())
        }
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => {
            address.set_ip(Ipv6Addr::LOCALHOST.into())
        }
        _ => {}
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_reached_on_loopback() {
        let reach = |text| reachable("--listen", text).map(|address| address.to_string());
        assert_eq!(reach(":8080").unwrap(), "127.0.0.1:8080");
        assert_eq!(reach("[::]:8080").unwrap(), "[::1]:8080");
        assert_eq!(reach("0.0.0.0:9").unwrap(), "127.0.0.1:9");
        assert_eq!(reach("127.0.0.2:9").unwrap(), "127.0.0.2:9");
        assert_eq!(reach("localhost:9").unwrap(), "127.0.0.1:9", "as the listener does");
        assert!(reach("127.0.0.1:0").unwrap_err().to_string().contains("--listen=127.0.0.1:0"));
        assert!(reach("8080").is_err());
    }
}
