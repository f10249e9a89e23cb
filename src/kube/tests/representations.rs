//! Tests of requests for metadata or tables in place of complete objects.

use super::*;
use crate::resources::{Column, RenderOptions, Representation, find};

const COLUMN: Column = Column { heading: "Type", member: "type" };

fn with_representation(representation: Representation) -> PipelineConfig {
    let mut watched = watched("pods", true);
    let schema = watched.renderer.schema();
    watched.renderer = Arc::new(NameRenderer { schema, representation });
    PipelineConfig { resources: vec![watched], ..config() }
}

/// The `Accept` headers of metadata requests, in order of preference.
#[tokio::test]
async fn metadata_is_requested_and_complete_objects_are_accepted() {
    let mut fixture = Fixture::new(&with_representation(Representation::Metadata)).await;
    let part = |kind| {
        let clause = format!(";as={kind};g=meta.k8s.io;v=v1,");
        format!("{PROTOBUF}{clause}{JSON}{clause}{PROTOBUF},{JSON}")
    };
    let request = fixture.stub.expect_streaming_list().await;
    assert_eq!(request.header("accept"), part("PartialObjectMetadata"));
    request.refuse(422);
    let request = fixture.stub.expect_request("/api/v1/pods?limit=500&resourceVersion=0").await;
    assert_eq!(request.header("accept"), part("PartialObjectMetadataList"));
    request.respond(200, PROTOBUF, stub::typed_list("PartialObjectMetadataList", "5"));
    let request = fixture.stub.expect_watch("5").await;
    assert_eq!(request.header("accept"), part("PartialObjectMetadata"));
    let body = request.start_watch();
    // A complete object has the same metadata in the same place.
    body.send(event("ADDED", &pod("a", "6")));
    fixture.wait_for_series(&["a 6"]).await;
    body.send(error(410, "Expired"));
    fixture.stub.expect_streaming_list().await.refuse(422);
    // A list of complete objects is accepted as well.
    fixture.stub.next_request().await.respond(200, PROTOBUF, list("9", "", &[pod("b", "7")]));
    fixture.wait_for_series(&["b 7"]).await;
}

/// If the server refuses metadata or tables, complete objects are requested immediately, and no failure is reported.
#[tokio::test]
async fn fallback_to_complete_objects() {
    for representation in [Representation::Metadata, Representation::Column(COLUMN)] {
        for code in [406, 415] {
            let mut fixture = Fixture::new(&with_representation(representation)).await;
            let request = fixture.stub.expect_streaming_list().await;
            assert!(request.header("accept").contains("as="));
            request.refuse(code);
            let request = fixture.stub.expect_streaming_list().await;
            assert_eq!(request.header("accept"), format!("{PROTOBUF},{JSON}"));
            let body = request.start_watch();
            body.send([event("ADDED", &pod("a", "1")), bookmark("5", true)].concat());
            fixture.wait_for_series(&["a 1"]).await;
            assert_eq!(fixture.failure(), "");
            // Later requests ask for complete objects.
            drop(body);
            let request = fixture.stub.expect_watch("5").await;
            assert_eq!(request.header("accept"), format!("{PROTOBUF},{JSON}"));
        }
    }
}

/// Returns a table of one row; without column definitions it resembles the later events of a watch.
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

/// The table contains the type of a secret but not its data.
#[tokio::test]
async fn secrets_are_requested_as_tables() {
    let secrets = find("secrets").expect("a resource");
    let watched = WatchedResource::built_in(secrets, &RenderOptions::default());
    let mut fixture = Fixture::new(&PipelineConfig { resources: vec![watched], ..config() }).await;
    let types = || {
        let series = fixture.catalog.frames(Format::Text, &ScrapeQuery::default()).flatten();
        let text = String::from_utf8(series.collect()).expect("UTF-8");
        let of = |line: &str| Some(line.split_once("secret=\"")?.1.replace("\",type=\"", " "));
        let types = text.lines().filter(|line| line.starts_with("kube_secret_type"));
        types.filter_map(of).map(|line| line.replace("\"} 1", "")).collect::<Vec<_>>().join(", ")
    };
    let accept = format!("{JSON};as=Table;g=meta.k8s.io;v=v1,{PROTOBUF},{JSON}");
    let request = fixture.stub.expect_streaming_list().await;
    assert_eq!(request.header("accept"), accept);
    let body = request.start_response(200, JSON);
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
    // Another server, older or newer, may respond with complete objects at any time.
    let request = fixture.stub.expect_watch("6").await;
    assert_eq!(request.header("accept"), accept);
    let body = request.start_response(200, JSON);
    let whole = r#"{"kind":"Secret","metadata":{"name":"b","namespace":"space","uid":"b","resourceVersion":"7"},"type":"whole","data":{"k":"dg=="}}"#;
    body.send(table_event("ADDED", whole));
    eventually(|| types() == "a other, b whole", types).await;
    body.send(table_event("DELETED", &table("8", true, "a", r#"["a","other"]"#)));
    eventually(|| types() == "b whole", types).await;
    body.send("{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"}}\n");
    fixture.stub.expect_streaming_list().await.refuse(422);
    let request = fixture.stub.next_request().await;
    assert_eq!(request.header("accept"), accept);
    request.respond(200, JSON, table("9", true, "c", r#"["c","listed"]"#));
    eventually(|| types() == "c listed", types).await;
    // A table without the type is unusable.
    fixture.stub.expect_watch("9").await.respond(
        200,
        JSON,
        table_event("ADDED", &table("10", true, "d", r#"["d"]"#)),
    );
    let request = fixture.stub.expect_streaming_list().await;
    assert_eq!(request.header("accept"), format!("{PROTOBUF},{JSON}"));
    assert_eq!(types(), "c listed");
}

/// Without the type family metadata is enough; other families need complete objects.
#[test]
fn families_determine_the_representation() {
    use crate::resources::select::filter::FamilyFilter;
    let representation = |resource: &str, allowed: &[&str], denied: &[&str]| {
        let texts = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let filter = FamilyFilter::new(&texts(allowed), &texts(denied), &[]).expect("patterns");
        let options = RenderOptions { families: Arc::new(filter), ..RenderOptions::default() };
        find(resource).expect("a resource").renderer(&options).representation()
    };
    assert_eq!(representation("configmaps", &[], &[]), Representation::Metadata);
    assert_eq!(representation("secrets", &[], &[]), Representation::Column(COLUMN));
    assert_eq!(representation("secrets", &[], &["_type$"]), Representation::Metadata);
    assert_eq!(representation("pods", &[], &[]), Representation::Object);
    assert_eq!(representation("pods", &["_labels$", "_created$"], &[]), Representation::Metadata);
    assert_eq!(representation("pods", &["nothing"], &[]), Representation::Metadata);
    assert_eq!(
        representation("certificatesigningrequests", &["_created$"], &[]),
        Representation::Object
    );
}
