//! Reloads that are requested over HTTP.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Waker};

use http_body_util::BodyExt as _;
use hyper::Request;
use tokio::sync::Notify;

use super::super::listeners::Role;
use super::super::personality::{RouterContext, RunningSide, routers};
use super::super::sides::StartContext;
use super::super::sides::statsd::STATSD;
use super::super::telemetry::Telemetry;
use crate::cli::config;
use crate::cli::statsd_flags::StatsdArgs;
use crate::server::readiness::Readiness;
use crate::server::router::Router;
use crate::status::Board;
use crate::telemetry::scrapes::ScrapeLog;

const MAPPING: &str = "mappings:\n- {match: a.*, name: new}\n";

/// Returns the routes of statsd_exporter with a mapping file.
async fn router(mapping: &Path) -> Router {
    let args = StatsdArgs {
        listen_udp: "127.0.0.1:0".to_owned(),
        listen_tcp: String::new(),
        web_enable_lifecycle: true,
        mapping_config: mapping.display().to_string(),
        ..StatsdArgs::default()
    };
    let config = config::statsd_exporter(&args).expect("valid");
    let readiness = Readiness::default();
    let telemetry = Telemetry::new(&config, &readiness);
    let (metrics, names) = (&telemetry.kube, &Arc::default());
    let start = StartContext { config: &config, metrics, names, pods: None, merged_metrics: None };
    let side = (STATSD.start)(start).await.expect("started");
    let board = Arc::new(Board::new("", ScrapeLog::default(), Vec::new()));
    let context = RouterContext {
        config: &config,
        sides: &[RunningSide { kind: &STATSD, features: side.features(), side }],
        telemetry: &telemetry,
        readiness: &readiness,
        board: &board,
        quit: &Arc::new(Notify::new()),
        standby: None,
    };
    routers(&context)(Role::Main, false, None)
}

/// Ten clients request a reload of a file that does not answer.
#[test]
fn reloads_leave_threads_for_other_requests() {
    let dir = tempfile::tempdir().expect("dir");
    let (mapping, new) = (dir.path().join("mapping.yml"), dir.path().join("new.yml"));
    std::fs::write(&mapping, "mappings: []\n").expect("write");
    std::fs::write(&new, MAPPING).expect("write");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let router = router(&mapping).await;
        std::fs::remove_file(&mapping).expect("removed");
        assert!(Command::new("mkfifo").arg(&mapping).status().expect("mkfifo").success());
        let ask = |request: hyper::http::request::Builder| {
            let (head, ()) = request.body(()).expect("a request").into_parts();
            Box::pin(router.dispatch(head))
        };
        let mut reloads: Vec<_> = (0..10).map(|_| ask(Request::post("/-/reload"))).collect();
        for reload in &mut reloads {
            let mut unwatched = Context::from_waker(Waker::noop());
            assert!(reload.as_mut().poll(&mut unwatched).is_pending());
        }
        assert_eq!(ask(Request::get("/-/healthy")).await.status(), 200);
        let answer = tokio::task::spawn_blocking(move || {
            // Opening it waits for the reader.
            let pipe = std::fs::OpenOptions::new().write(true).open(&mapping);
            let mut pipe = pipe.expect("a reader");
            std::fs::rename(&new, &mapping).expect("renamed");
            pipe.write_all(MAPPING.as_bytes()).expect("written");
        });
        answer.await.expect("no panic");
        for reload in reloads {
            assert_eq!(reload.await.status(), 200);
        }
        let metrics = ask(Request::get("/metrics")).await.into_body().collect().await;
        let metrics = metrics.expect("a body").to_bytes();
        let metrics = String::from_utf8(metrics.to_vec()).expect("text");
        assert!(metrics.contains("statsd_exporter_loaded_mappings 1\n"), "{metrics}");
    });
}
