//! JSON values as short text. What a switch of another version leaves out reads as `-`.

use serde_json::Value;

/// One member of an object.
pub(super) fn member<'a>(object: &'a Value, name: &str) -> &'a Value {
    object.get(name).unwrap_or(&Value::Null)
}

/// One member of an object, as text.
pub(super) fn text(object: &Value, name: &str) -> String {
    plain(member(object, name))
}

/// A value in one word, or a few.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => format!("{float:.2}"),
            _ => number.to_string(),
        },
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(","),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| format!("{name}={}", plain(value)));
            members.collect::<Vec<_>>().join(" ")
        }
    }
}

/// The elements of an array; none if it is no array.
pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The members of an object; none if it is no object.
pub(super) fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// Part of a whole in percent, with two decimals; `-` of nothing.
pub(super) fn percent(part: &Value, whole: &Value) -> String {
    match (part.as_f64(), whole.as_f64()) {
        (Some(part), Some(whole)) if whole > 0.0 => format!("{:.2} %", 100.0 * part / whole),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_value_reads_as_a_short_text() {
        assert_eq!(plain(&json!(null)), "-");
        assert_eq!(plain(&json!(true)), "yes");
        assert_eq!(plain(&json!(18446744073709551615_u64)), "18446744073709551615");
        assert_eq!(plain(&json!(1.714)), "1.71");
        assert_eq!(plain(&json!([])), "-");
        assert_eq!(plain(&json!(["vm1", "vm2"])), "vm1,vm2");
        assert_eq!(plain(&json!({"no_rule": 3})), "no_rule=3");
        assert_eq!(text(&json!({"a": 1}), "b"), "-");
    }

    #[test]
    fn percent_of_nothing_is_no_number() {
        assert_eq!(percent(&json!(1), &json!(4)), "25.00 %");
        assert_eq!(percent(&json!(1), &json!(0)), "-");
        assert_eq!(percent(&json!("x"), &json!(4)), "-");
    }
}
