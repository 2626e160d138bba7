//! Makes `docs/status.schema.json` and `docs/events.schema.json` of the types. To write them anew after a change:
//! `BATON_BLESS=1 cargo test -p baton-report schema`.

use std::fs;
use std::path::Path;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::event::History;
use crate::status::Status;

/// Makes the schema of the written form: readers allow more.
fn of<T: JsonSchema>() -> Value {
    let mut schema =
        SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>().to_value();
    tighten(&mut schema);
    schema
}

/// Adds rules that hold for all of these objects and that the types do not express: no fraction is negative, there are no other fields,
/// and an optional field is never null. Line breaks in comments have no meaning.
fn tighten(schema: &mut Value) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(tighten),
        Value::Object(words) => {
            words.remove("format");
            words.remove("default");
            if let Some(Value::String(description)) = words.get_mut("description") {
                *description = description.replace('\n', " ");
            }
            if words.get("type").is_some_and(|of| of == "number" || of[0] == "number") {
                words.insert("minimum".to_owned(), 0.into());
            }
            let required = words.get("required").cloned().unwrap_or_default();
            if let Some(Value::Object(fields)) = words.get_mut("properties") {
                let is_required =
                    |name: &String| required.as_array().is_some_and(|all| all.iter().any(|one| one == name));
                for (_, field) in fields.iter_mut().filter(|(name, _)| !is_required(name)) {
                    if let Some(of) = field.get("type").filter(|of| of[1] == "null") {
                        field["type"] = of[0].clone();
                    }
                }
                words.insert("additionalProperties".to_owned(), false.into());
            }
            words.values_mut().for_each(tighten);
        }
        _ => {}
    }
}

/// Checks that a document is the one made from the types, or writes it anew.
#[track_caller]
fn is_made_of<T: JsonSchema>(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    let made = format!("{:#}\n", of::<T>());
    if std::env::var_os("BATON_BLESS").is_some() {
        fs::write(&path, &made).expect("a writable document");
    }
    let there = fs::read_to_string(&path).expect("a file of the repository");
    assert!(there == made, "docs/{name} is not what the types say: BATON_BLESS=1 cargo test -p baton-report schema");
}

#[test]
fn the_schema_of_a_status_is_made_of_its_type() {
    is_made_of::<Status>("status.schema.json");
}

#[test]
fn the_schema_of_events_is_made_of_their_type() {
    is_made_of::<History>("events.schema.json");
}
