//! All flags of kube-state-metrics, including those of its log.

use super::flag::Flag;
use super::klog;
pub(crate) use super::kube_args::FLAGS;
pub use super::kube_args::KubeArgs;

/// Returns every flag of kube-state-metrics.
pub fn all() -> Vec<Flag<KubeArgs>> {
    FLAGS.iter().chain(klog::FLAGS).map(Flag::copy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::flag::find;
    use crate::recorded::{cases, texts};

    #[test]
    fn comma_lists() {
        for case in cases("ksm/comma_list_flags.json", 14) {
            let mut args = KubeArgs::default();
            for value in texts(&case["values"]) {
                for name in ["resources", "metric-allowlist", "namespaces"] {
                    let flag = find(FLAGS, name).expect("flag");
                    (flag.set)(&mut args, &value).expect("any text");
                }
            }
            let resources: Vec<String> = args.resources.into_iter().collect();
            let metrics: Vec<String> = args.metric_allowlist.into_iter().collect();
            assert_eq!(resources, texts(&case["as_resources"]), "{case}");
            assert_eq!(metrics.join(","), case["as_metrics"].as_str().expect("text"), "{case}");
            assert_eq!(args.namespaces, texts(&case["as_namespaces"]), "{case}");
        }
    }

    #[test]
    fn every_default_is_a_valid_value() {
        for flag in FLAGS.iter().filter(|flag| !flag.default.is_empty()) {
            let set = (flag.set)(&mut KubeArgs::default(), flag.default);
            assert_eq!(set, Ok(()), "--{}", flag.name);
        }
        let args = KubeArgs::default();
        assert_eq!((args.host.as_str(), args.port, args.total_shards), ("::", 8080, 1));
        assert_eq!(args.server_read_header_timeout, 5_000_000_000);
    }

    #[test]
    fn flag_and_key_names_are_unique() {
        let flags = all();
        let mut names: Vec<_> = flags.iter().map(|flag| flag.name).collect();
        let keys = flags.iter().filter_map(|flag| flag.keys).flat_map(|keys| keys.names);
        let mut keys: Vec<_> = keys.collect();
        for list in [&mut names, &mut keys.iter_mut().map(|key| **key).collect()] {
            let all = list.len();
            list.sort_unstable();
            list.dedup();
            assert_eq!(list.len(), all);
        }
    }
}
