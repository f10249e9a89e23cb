//! The work of the reconciler for many list/watches, against the API double.

use kstatd_double::{Double, Options};

use super::*;

/// Starts a pipeline with this number of namespaces, then changes its configuration, and returns how often the reconciler
/// looked at the progress of a list/watch, for each of them.
async fn visits_of_each(namespaces: usize) -> [usize; 2] {
    let double =
        Double::start(&Options { pods: 20, ..Options::default() }).await.expect("a server");
    let options = ClientOptions {
        apiserver: Some(double.url()),
        user_agent: "kstatd/test".to_owned(),
        ..ClientOptions::default()
    };
    let client = Arc::new(Client::new(&options).await.expect("a client"));
    let resources: Vec<_> = ["pods", "configmaps"].map(|plural| watched(plural, true)).into();
    let names: Vec<String> = (0..namespaces).map(|number| format!("ns{number}")).collect();
    let config = PipelineConfig { resources, namespaces: names, ..PipelineConfig::default() };
    let (catalog, metrics) = (Catalog::new(), KubeMetrics::default());
    let pipeline = Pipeline::start(&client, &config, &catalog, &metrics).expect("a thread");
    let mut handle = pipeline.handle();
    let mut visits = [0; 2];
    for (number, visits) in visits.iter_mut().enumerate() {
        let number = if number == 0 {
            1
        } else {
            let config = PipelineConfig { use_apiserver_cache: true, ..config.clone() };
            pipeline.reconfigure(&client, &config)
        };
        let applied = async {
            while !handle.is_applied(number) {
                handle.changed().await;
            }
        };
        let pending = tokio::time::timeout(DEADLINE, applied).await;
        pending.expect("everything is listed");
        let lists = handle.lists();
        *visits = lists.iter().map(|progress| progress.visits()).sum::<usize>() / lists.len();
    }
    pipeline.stop().await;
    visits
}

#[tokio::test]
async fn reconciliation_is_linear_in_the_list_watches() {
    let (few, many) = (visits_of_each(20).await, visits_of_each(160).await);
    for (few, many) in few.into_iter().zip(many) {
        assert!(many <= 2 * few + 10, "{few} visits of each of 40 list/watches, {many} of 320");
    }
}
