//! What is asked for when series need only a part of the objects.

use super::*;
use crate::resources::{Column, Needs, RenderOptions, find};

const COLUMN: Column = Column { heading: "Type", member: "type" };

fn needing(needs: Needs) -> PipelineConfig {
    let mut watched = watched("pods", true);
    let schema = watched.renderer.schema();
    watched.renderer = Arc::new(Names(schema, needs));
    PipelineConfig { resources: vec![watched], ..config() }
}

/// What a watch or a list of metadata accepts, and in which order.
#[tokio::test]
async fn metadata_is_asked_for_and_the_whole_is_taken_too() {
    let mut bench = Bench::new(&needing(Needs::Metadata)).await;
    let part = |kind| {
        let clause = format!(";as={kind};g=meta.k8s.io;v=v1,");
        format!("{PROTOBUF}{clause}{JSON}{clause}{PROTOBUF},{JSON}")
    };
    let call = bench.stub.streaming().await;
    assert_eq!(call.header("accept"), part("PartialObjectMetadata"));
    call.refuse(422);
    let call = bench.stub.expect("/api/v1/pods?limit=500&resourceVersion=0").await;
    assert_eq!(call.header("accept"), part("PartialObjectMetadataList"));
    call.answer(200, PROTOBUF, stub::typed_list("PartialObjectMetadataList", "5"));
    let call = bench.stub.watch("5").await;
    assert_eq!(call.header("accept"), part("PartialObjectMetadata"));
    let body = call.protobuf();
    // An object as a whole has the same metadata at the same place.
    body.send(event("ADDED", &pod("a", "6")));
    bench.shows(&["a 6"]).await;
    body.send(error(410, "Expired"));
    bench.stub.streaming().await.refuse(422);
    // Any server's list of the kind itself is one.
    bench.stub.next().await.answer(200, PROTOBUF, list("9", "", &[pod("b", "7")]));
    bench.shows(&["b 7"]).await;
}

/// A server that will not give a part is asked for the whole at once, without anything to be seen of it.
#[tokio::test]
async fn a_server_without_parts_is_asked_for_the_whole() {
    for needs in [Needs::Metadata, Needs::Column(COLUMN)] {
        for code in [406, 415] {
            let mut bench = Bench::new(&needing(needs)).await;
            let call = bench.stub.streaming().await;
            assert!(call.header("accept").contains("as="));
            call.refuse(code);
            let call = bench.stub.streaming().await;
            assert_eq!(call.header("accept"), format!("{PROTOBUF},{JSON}"));
            let body = call.protobuf();
            body.send([event("ADDED", &pod("a", "1")), bookmark("5", true)].concat());
            bench.shows(&["a 1"]).await;
            assert_eq!(bench.failure(), "");
            // It stays like that.
            drop(body);
            let call = bench.stub.watch("5").await;
            assert_eq!(call.header("accept"), format!("{PROTOBUF},{JSON}"));
        }
    }
}

/// A table of one row, as a list has it; without definitions of columns, as later events of a watch.
fn table(version: &str, defined: bool, name: &str, cells: &str) -> String {
    let columns = r#"[{"name":"Name","type":"string"},{"name":"Type","description":"\"]"}]"#;
    let columns = if defined { columns } else { "null" };
    let metadata = format!(
        r#"{{"name":"{name}","namespace":"space","uid":"{name}","resourceVersion":"{version}"}}"#
    );
    format!(
        r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"{version}"}},"columnDefinitions":{columns},"rows":[{{"cells":{cells},"object":{{"kind":"PartialObjectMetadata","metadata":{metadata}}}}}]}}"#
    )
}

fn table_event(kind: &str, table: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{table}}}\n")
}

/// The type of a secret comes out of a table, and its data not at all.
#[tokio::test]
async fn secrets_are_asked_for_as_tables() {
    let secrets = find("secrets").expect("a resource");
    let watched = Watched::built_in(secrets, &RenderOptions::default());
    let mut bench = Bench::new(&PipelineConfig { resources: vec![watched], ..config() }).await;
    let types = || {
        let series = bench.catalog.frames(Format::Text, &ScrapeQuery::default()).flatten();
        let text = String::from_utf8(series.collect()).expect("UTF-8");
        let of = |line: &str| Some(line.split_once("secret=\"")?.1.replace("\",type=\"", " "));
        let types = text.lines().filter(|line| line.starts_with("kube_secret_type"));
        types.filter_map(of).map(|line| line.replace("\"} 1", "")).collect::<Vec<_>>().join(", ")
    };
    let accept = format!("{JSON};as=Table;g=meta.k8s.io;v=v1,{PROTOBUF},{JSON}");
    let call = bench.stub.streaming().await;
    assert_eq!(call.header("accept"), accept);
    let body = call.open(200, JSON);
    body.send(table_event("ADDED", &table("3", true, "a", r#"["a","kind/of\"a"]"#)));
    let end = table("5", false, "", r#"["",""]"#).replace(
        r#""namespace""#,
        r#""annotations":{"k8s.io/initial-events-end":"true"},"namespace""#,
    );
    body.send(table_event("BOOKMARK", &end));
    eventually(|| types() == r#"a kind/of\"a"#, types).await;
    body.send(table_event("MODIFIED", &table("6", false, "a", r#"[ "a" , "other" , 3 ]"#)));
    eventually(|| types() == "a other", types).await;
    drop(body);
    // A server that is older or newer than the one before gives what it has, at any time.
    let call = bench.stub.watch("6").await;
    assert_eq!(call.header("accept"), accept);
    let body = call.open(200, JSON);
    let whole = r#"{"kind":"Secret","metadata":{"name":"b","namespace":"space","uid":"b","resourceVersion":"7"},"type":"whole","data":{"k":"dg=="}}"#;
    body.send(table_event("ADDED", whole));
    eventually(|| types() == "a other, b whole", types).await;
    body.send(table_event("DELETED", &table("8", true, "a", r#"["a","other"]"#)));
    eventually(|| types() == "b whole", types).await;
    body.send("{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"}}\n");
    bench.stub.streaming().await.refuse(422);
    let call = bench.stub.next().await;
    assert_eq!(call.header("accept"), accept);
    call.answer(200, JSON, table("9", true, "c", r#"["c","listed"]"#));
    eventually(|| types() == "c listed", types).await;
    // A table that does not show the type is of no use.
    bench.stub.watch("9").await.answer(
        200,
        JSON,
        table_event("ADDED", &table("10", true, "d", r#"["d"]"#)),
    );
    let call = bench.stub.streaming().await;
    assert_eq!(call.header("accept"), format!("{PROTOBUF},{JSON}"));
    assert_eq!(types(), "c listed");
}

/// Where nobody wants the type, metadata is enough; where another family is wanted, nothing less than all.
#[test]
fn what_is_needed_follows_from_the_families() {
    use crate::resources::select::filter::FamilyFilter;
    let needs = |resource: &str, allowed: &[&str], denied: &[&str]| {
        let texts = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let filter = FamilyFilter::new(&texts(allowed), &texts(denied), &[]).expect("patterns");
        let options = RenderOptions { families: Arc::new(filter), ..RenderOptions::default() };
        find(resource).expect("a resource").renderer(&options).needs()
    };
    assert_eq!(needs("configmaps", &[], &[]), Needs::Metadata);
    assert_eq!(needs("secrets", &[], &[]), Needs::Column(COLUMN));
    assert_eq!(needs("secrets", &[], &["_type$"]), Needs::Metadata);
    assert_eq!(needs("pods", &[], &[]), Needs::Object);
    assert_eq!(needs("pods", &["_labels$", "_created$"], &[]), Needs::Metadata);
    assert_eq!(needs("pods", &["nothing"], &[]), Needs::Metadata);
    assert_eq!(needs("certificatesigningrequests", &["_created$"], &[]), Needs::Object);
}
