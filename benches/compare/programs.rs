//! The programs that are compared: ours and both originals, built from source unless they are named.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Paths given on the command line; what is missing is built.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Given {
    /// A kstatd to measure, instead of building one
    #[arg(long, value_name = "PATH")]
    kstatd: Option<PathBuf>,
    /// A kube-state-metrics, instead of building it from Go modules
    #[arg(long, value_name = "PATH")]
    kube_state_metrics: Option<PathBuf>,
    /// A statsd_exporter, instead of building it from Go modules
    #[arg(long, value_name = "PATH")]
    statsd_exporter: Option<PathBuf>,
}

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Ours.
    pub kstatd: PathBuf,
    /// The original of the Kubernetes side.
    pub kube_state_metrics: PathBuf,
    /// The original of the StatsD side.
    pub statsd_exporter: PathBuf,
    /// Benchmark of the original's mapper.
    pub mapper_bench: PathBuf,
    /// Benchmark of the original's metrics of each kind.
    pub kind_bench: PathBuf,
    /// cAdvisor's walk through a directory.
    pub cadvisor: PathBuf,
    /// This program, for the limits.
    pub own: PathBuf,
    /// Where logs and bodies go.
    pub scratch: PathBuf,
}

impl Programs {
    /// Builds what is missing.
    pub fn prepare(given: &Given) -> Result<Self> {
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

/// The repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn build_kstatd() -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(cargo).args(["build", "--release", "--package", "kstatd"]).current_dir(ROOT))
}

/// Builds a package of the module in a folder of `tests/peers`.
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
