//! The names of the processes to report.

/// The length to which the kernel truncates process names, in bytes.
pub(super) const COMM_LENGTH: usize = 15;

/// The maximum number of names, which bounds the number of series.
const MAX_NAMES: usize = 32;

/// The system processes of common Kubernetes nodes, and kstatd.
pub(crate) const DEFAULT_PROCESSES: &str = "kubelet,containerd,dockerd,crio,kube-proxy,calico-node,\
    cilium-agent,flanneld,aws-k8s-agent,antrea-agent,kube-router,ovs-vswitchd,k3s-server,\
    k3s-agent,kstatd";

/// An invalid list of process names.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NameError {
    /// The list is too long.
    #[error("more than {MAX_NAMES} process names")]
    TooMany,
    /// A name contains a character that is not printable, or a slash.
    #[error("process name {0:?} must be printable and without a slash")]
    Invalid(String),
    /// Two names cannot be told apart in `/proc`.
    #[error(
        "process names {0:?} and {1:?} are equal in their first {COMM_LENGTH} bytes, which is all that /proc shows"
    )]
    Ambiguous(String, String),
}

/// A valid list of process names: sorted, without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessNames(Vec<String>);

impl ProcessNames {
    /// Creates a list; empty names are ignored.
    ///
    /// # Errors
    ///
    /// When there are too many names, or a name is invalid or ambiguous.
    pub(crate) fn new(names: &[String]) -> Result<Self, NameError> {
        let mut names: Vec<String> =
            names.iter().filter(|name| !name.is_empty()).cloned().collect();
        names.sort_unstable();
        names.dedup();
        if names.len() > MAX_NAMES {
            return Err(NameError::TooMany);
        }
        let is_invalid = |name: &&String| name.chars().any(|of| of.is_control() || of == '/');
        if let Some(name) = names.iter().find(is_invalid) {
            return Err(NameError::Invalid(name.clone()));
        }
        // Names with a common prefix are adjacent.
        if let Some([a, b]) = names.windows(2).find(|pair| comm(&pair[0]) == comm(&pair[1])) {
            return Err(NameError::Ambiguous(a.clone(), b.clone()));
        }
        Ok(Self(names))
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// Returns a name as it appears in `/proc/PID/comm`.
pub(super) fn comm(name: &str) -> &[u8] {
    let name = name.as_bytes();
    name.get(..COMM_LENGTH).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> Result<ProcessNames, NameError> {
        ProcessNames::new(&of.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn lists_of_names() {
        assert_eq!(names(&["b", "", "a", "b"]), Ok(ProcessNames(vec!["a".into(), "b".into()])));
        assert!(names(&DEFAULT_PROCESSES.split(',').collect::<Vec<_>>()).is_ok());
        assert!(names(&[""]).expect("no names").is_empty());
        for wrong in ["a/b", "a\n"] {
            assert_eq!(names(&[wrong]), Err(NameError::Invalid(wrong.into())));
        }
        let (a, b) = ("containerd-shim-runc-v1", "containerd-shim-runc-v2");
        assert_eq!(names(&[a, b]), Err(NameError::Ambiguous(a.into(), b.into())));
        let many: Vec<String> = (0..33).map(|name| name.to_string()).collect();
        assert_eq!(ProcessNames::new(&many), Err(NameError::TooMany));
    }
}
