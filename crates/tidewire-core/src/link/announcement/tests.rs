//! Announcements: faults, subjects and lists.

use tidewire_proto::wire::FieldsWriter;

use super::{Entry, Malformed, ValidAnnouncement, agent_subject, entries, validate};

fn said(field: &str, text: &str) -> Vec<u8> {
    let mut said = Vec::new();
    FieldsWriter::new(&mut said).add(field, text.as_bytes()).expect("it is short");
    said
}

fn service(change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let method = serde_json::json!({
        "name": "pay", "description": "", "parameters": {"type": "object"}, "result": {}, "stream": false,
        "idempotent": false, "timeout": 2.5, "visibility": "private", "notes": ["not exact"],
    });
    let event = serde_json::json!({
        "subject": "bank.>", "queue": null, "method": "hear", "description": "", "message": {},
    });
    let mut info = serde_json::json!({
        "name": "bank", "description": "", "visibility": "public", "methods": [method], "events": [event],
        "instances": ["one"],
        "details": [{"id": "one", "version": "1.4.2-rc.1+b7", "metadata": {"zone": "eu", "note": ""}}],
        "added by a later version": [1],
    });
    change(&mut info);
    said("service", &info.to_string())
}

fn problem(says: &[u8]) -> String {
    validate("svc.bank.one.*", "", says).expect_err("it is wrong")
}

#[test]
fn a_service_is_told_of_where_its_instance_is_called() {
    let says = service(|_| ());
    let found = validate("svc.bank.one.*", "", &says).expect("it is well formed");
    assert!(matches!(found, ValidAnnouncement::Service { name, instance, .. } if name == "bank" && instance == "one"));
    for (pattern, queue) in [("svc.bank.two.*", ""), ("svc.shop.one.*", ""), ("svc.bank.one.*", "bank"), (">", "")] {
        let problem = validate(pattern, queue, &says).expect_err("that is another's");
        assert!(problem.contains("not those of its subject"), "{problem}");
    }
    assert_eq!(validate("news", "", &said("later", "1")), Ok(ValidAnnouncement::Nothing));
}

#[test]
fn each_fault_of_a_description_is_named() {
    type Change = fn(&mut serde_json::Value);
    let faults: [(&str, Change); 20] = [
        ("two of its methods", |info| info["methods"] = vec![info["methods"][0].clone(); 2].into()),
        ("service_methods=1000", |info| {
            let event = serde_json::json!({"subject": "", "method": "", "description": "", "message": {}});
            info["events"] = vec![event; 1_001].into();
        }),
        ("as a name", |info| info["methods"][0]["name"] = "a b".into()),
        ("as a name", |info| info["name"] = "a.b".into()),
        ("timeout", |info| info["methods"][0]["timeout"] = (-1).into()),
        ("timeout", |info| info["methods"][0]["timeout"] = 1e30.into()),
        ("version: \"1.4\"", |info| info["details"][0]["version"] = "1.4".into()),
        ("expected a string", |info| info["details"][0]["version"] = 1.into()),
        ("as a name", |info| info["details"][0]["metadata"][""] = "eu".into()),
        ("service_metadata_bytes=4096", |info| info["details"][0]["metadata"]["of"] = "e".repeat(4_089).into()),
        ("expected a string", |info| info["details"][0]["metadata"]["zone"] = 1.into()),
        ("not those of its instance", |info| info["details"][0]["id"] = "two".into()),
        ("expected f64", |info| info["methods"][0]["timeout"] = "soon".into()),
        ("unknown variant", |info| info["methods"][0]["visibility"] = "all".into()),
        ("expected a map", |info| info["methods"][0]["result"] = 7.into()),
        ("expected a string", |info| info["methods"][0]["name"] = 5.into()),
        ("expected a sequence", |info| info["methods"] = serde_json::Value::Null),
        ("expected a sequence", |info| info["instances"] = "one".into()),
        ("not those of its subject", |info| info["instances"] = vec!["one", "two"].into()),
        ("missing field", |info| drop(info.as_object_mut().map(|info| info.remove("events")))),
    ];
    for (names, change) in faults {
        let found = problem(&service(change));
        assert!(found.contains(names), "{names}: {found}");
    }
    for text in ["", "{", "null", "[]", &"[".repeat(5_000), "{\"name\": NaN}", "\0"] {
        assert!(problem(&said("service", text)).starts_with("service: "), "{text}");
    }
    let long = problem(&said("service", &format!("{{\"visibility\": \"{}\"}}", "x".repeat(9_000))));
    assert_eq!(long.chars().count(), 200);
    assert!(validate("svc.bank.one.*", "", b"\x01no fields").is_err());
}

#[test]
fn an_agent_is_told_of_on_its_own_subject() {
    let says = said("agent", r#"{"id": "ann", "type": "desk", "capabilities": ["add"]}"#);
    assert!(matches!(validate("agent.ann", "", &says), Ok(ValidAnnouncement::Agent { .. })));
    assert!(validate("agent.bob", "", &says).is_err() && validate("agent.ann", "all", &says).is_err());
    assert!(validate("agent.ann", "", &said("agent", r#"{"id": "ann", "type": 1, "capabilities": []}"#)).is_err());
    assert_eq!(agent_subject("~a.b"), "agent.~7e612e62");
    assert_eq!(agent_subject(&"x".repeat(99)).len(), 105);
    assert_eq!(agent_subject(&"x".repeat(100)).len(), 207);
}

#[test]
fn a_list_is_read_up_to_where_it_is_broken() {
    let mut listed = b"\x03\0ann\0\0\x04\0news\x02\0\0\0\x01\0\0\0\0".to_vec();
    let entry = Entry { node: "ann", queue: "", pattern: "news", in_progress: 2, says: &[0] };
    assert_eq!(entries(&listed).collect::<Vec<_>>(), [Ok(entry)]);
    listed.push(9);
    assert_eq!(entries(&listed).collect::<Vec<_>>(), [Ok(entry), Err(Malformed)]);
}
