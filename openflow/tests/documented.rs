//! docs/openflow.md names every field.

use tollgate_openflow::Field;

#[test]
fn every_field_is_in_the_documentation() {
    let page = include_str!("../../docs/openflow.md");
    let is_named = |field: &&Field| {
        let name = field.info().name;
        page.contains(&format!("`{name}`")) || name.starts_with("reg")
    };
    let missing: Vec<_> = Field::ALL.iter().filter(|field| !is_named(field)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
