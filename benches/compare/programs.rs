//! The compared programs: kstatd and both originals, built from source unless paths are given.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Paths given on the command line; missing programs are built.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ProgramPaths {
    /// Measure this kstatd instead of building one
    #[arg(long, value_name = "PATH")]
    kstatd: Option<PathBuf>,
    /// Use this kube-state-metrics instead of building it from Go modules
    #[arg(long, value_name = "PATH")]
    kube_state_metrics: Option<PathBuf>,
    /// Use this statsd_exporter instead of building it from Go modules
    #[arg(long, value_name = "PATH")]
    statsd_exporter: Option<PathBuf>,
}

/// The paths of the programs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// kstatd.
    pub kstatd: PathBuf,
    /// The original of the Kubernetes side.
    pub kube_state_metrics: PathBuf,
    /// The original of the StatsD side.
    pub statsd_exporter: PathBuf,
    /// Benchmark of the original's mapper.
    pub mapper_bench: PathBuf,
    /// Benchmark of the original's metrics of each kind.
    pub kind_bench: PathBuf,
    /// cAdvisor's directory walk.
    pub cadvisor: PathBuf,
    /// This program, which also contains the limit programs.
    pub own: PathBuf,
    /// Directory for logs and bodies.
    pub scratch: PathBuf,
}

impl Programs {
    /// Builds missing programs.
    pub fn prepare(given: &ProgramPaths) -> Result<Self> {
        let own = std::env::current_exe()?;
        // target/release/kstatd-compare
        let release = own.parent().context("no target directory above this program")?;
        let scratch = release.join("compare");
        std::fs::create_dir_all(&scratch)?;
        let kstatd = match &given.kstatd {
            Some(path) => path.clone(),
            None => {
                build_kstatd()?;
                release.join("kstatd")
            }
        };
        let peer = |given: &Option<PathBuf>, name: &str, package: &str| match given {
            Some(path) => Ok(path.clone()),
            None => go_build(&scratch.join(name), "", package),
        };
        Ok(Self {
            kstatd,
            kube_state_metrics: peer(
                &given.kube_state_metrics,
                "kube-state-metrics",
                "k8s.io/kube-state-metrics/v2",
            )?,
            statsd_exporter: peer(
                &given.statsd_exporter,
                "statsd_exporter",
                "github.com/prometheus/statsd_exporter",
            )?,
            mapper_bench: go_build(&scratch.join("mapperbench"), "", "./mapperbench")?,
            kind_bench: go_build(&scratch.join("kindbench"), "", "./kindbench")?,
            cadvisor: go_build(&scratch.join("cadvisor"), "cadvisor", ".")?,
            own,
            scratch,
        })
    }
}

/// The root of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn build_kstatd() -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(cargo).args(["build", "--release", "--package", "kstatd"]).current_dir(ROOT))
}

/// Builds a package of a module in `tests/peers`.
fn go_build(output: &Path, module: &str, package: &str) -> Result<PathBuf> {
    run(Command::new("go")
        .args(["build", "-buildvcs=false", "-trimpath", "-o"])
        .arg(output)
        .arg(package)
        .current_dir(Path::new(ROOT).join("tests/peers").join(module)))?;
    Ok(output.to_owned())
}

fn run(command: &mut Command) -> Result<()> {
    eprintln!("{command:?}");
    let status = command.status().with_context(|| format!("{command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed with {status}");
    }
    Ok(())
}
