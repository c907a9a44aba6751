//! A request's parameters, taken out one by one so that each mistake is answered with the name of
//! the parameter and what would be right.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::RpcError;
use crate::names::shortened;

/// Parameters by name that nobody has taken yet.
#[derive(Debug)]
pub struct Params {
    values: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Params {
    /// From the `params` member of a request.
    ///
    /// # Errors
    /// When it is neither absent nor an object: parameters go by name here.
    pub fn new(params: Option<Value>) -> Result<Self, RpcError> {
        let values = match params {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(values)) => values,
            // Clients that have nothing to say often say it with an empty array.
            Some(Value::Array(values)) if values.is_empty() => Map::new(),
            Some(_) => {
                return Err(RpcError::invalid_params(
                    "`params` must be an object: parameters go by name, as in {\"name\": \"vm1\"}",
                ));
            }
        };
        Ok(Self { values, known: Vec::new() })
    }

    fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.values.remove(name).filter(|value| !value.is_null())
    }

    /// A text that may be absent.
    ///
    /// # Errors
    /// When it is something else.
    pub fn optional_text(&mut self, name: &'static str) -> Result<Option<String>, RpcError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(name, "a string", &other)),
        }
    }

    /// A text that must be there.
    ///
    /// # Errors
    /// When it is absent or something else.
    pub fn text(&mut self, name: &'static str) -> Result<String, RpcError> {
        self.optional_text(name)?.ok_or_else(|| missing(name, "a string"))
    }

    /// Texts that must be there, though there may be none of them.
    ///
    /// # Errors
    /// When they are absent or something else.
    pub fn texts(&mut self, name: &'static str) -> Result<Vec<String>, RpcError> {
        const WANTED: &str = "an array of strings";
        let values = match self.take(name) {
            None => return Err(missing(name, WANTED)),
            Some(Value::Array(values)) => values,
            Some(other) => return Err(wrong(name, WANTED, &other)),
        };
        let text = |value| match value {
            Value::String(text) => Ok(text),
            other => Err(RpcError::invalid_params(format!(
                "parameter `{name}` must be {WANTED}, and {other} is none"
            ))),
        };
        values.into_iter().map(text).collect()
    }

    /// A whole number within `allowed` that may be absent.
    ///
    /// # Errors
    /// When it is something else.
    pub fn optional_integer<T: TryFrom<u64> + PartialOrd + Display>(
        &mut self,
        name: &'static str,
        allowed: RangeInclusive<T>,
    ) -> Result<Option<T>, RpcError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = value.as_u64().and_then(|number| T::try_from(number).ok());
        match number.filter(|number| allowed.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(name, &whole_number(&allowed), &value)),
        }
    }

    /// A whole number within `allowed` that must be there.
    ///
    /// # Errors
    /// When it is absent or something else.
    pub fn integer<T: TryFrom<u64> + PartialOrd + Display>(
        &mut self,
        name: &'static str,
        allowed: RangeInclusive<T>,
    ) -> Result<T, RpcError> {
        let wanted = whole_number(&allowed);
        self.optional_integer(name, allowed)?.ok_or_else(|| missing(name, &wanted))
    }

    /// A number that may be absent.
    ///
    /// # Errors
    /// When it is something else.
    pub fn optional_number(&mut self, name: &'static str) -> Result<Option<f64>, RpcError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        value.as_f64().map(Some).ok_or_else(|| wrong(name, "a number", &value))
    }

    /// A truth value that may be absent.
    ///
    /// # Errors
    /// When it is something else.
    pub fn optional_boolean(&mut self, name: &'static str) -> Result<Option<bool>, RpcError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(other) => Err(wrong(name, "true or false", &other)),
        }
    }

    /// A truth value that must be there.
    ///
    /// # Errors
    /// When it is absent or something else.
    pub fn boolean(&mut self, name: &'static str) -> Result<bool, RpcError> {
        self.optional_boolean(name)?.ok_or_else(|| missing(name, "true or false"))
    }

    /// Ends the taking: a method calls it before it acts.
    ///
    /// # Errors
    /// When a parameter is left, by its name and with the names that exist.
    pub fn finish(self) -> Result<(), RpcError> {
        let Some(unknown) = self.values.keys().next() else { return Ok(()) };
        let known = if self.known.is_empty() {
            "the method takes none".to_owned()
        } else {
            format!("the method takes {}", self.known.join(", "))
        };
        let unknown = shortened(unknown);
        Err(RpcError::invalid_params(format!("unknown parameter {unknown}: {known}")))
    }
}

/// The error for a parameter that is well typed but refused.
pub(crate) fn refused_value(name: &str, reason: impl Display) -> RpcError {
    RpcError::invalid_params(format!("parameter `{name}`: {reason}"))
}

fn whole_number<T: Display>(allowed: &RangeInclusive<T>) -> String {
    format!("a whole number from {} to {}", allowed.start(), allowed.end())
}

fn missing(name: &str, wanted: &str) -> RpcError {
    RpcError::invalid_params(format!("parameter `{name}` is missing: it must be {wanted}"))
}

fn wrong(name: &str, wanted: &str, got: &Value) -> RpcError {
    let got = match got {
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) => shortened(text),
        scalar => scalar.to_string(),
    };
    RpcError::invalid_params(format!("parameter `{name}` must be {wanted}, not {got}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn params(value: Value) -> Params {
        Params::new(Some(value)).unwrap()
    }

    #[test]
    fn mistakes_name_the_parameter_and_what_would_be_right() {
        let messages = [
            params(json!({})).text("name").unwrap_err(),
            params(json!({"name": 7})).text("name").unwrap_err(),
            params(json!({"name": 70000})).optional_integer("name", 1..=8_u16).unwrap_err(),
            params(json!({"name": 1.5})).optional_integer("name", 1..=8_u16).unwrap_err(),
            params(json!({})).integer("name", 1..=8_u16).unwrap_err(),
            params(json!({"name": "1"})).optional_number("name").unwrap_err(),
            params(json!({"name": "yes"})).boolean("name").unwrap_err(),
            params(json!({"name": "one"})).texts("name").unwrap_err(),
            params(json!({"name": ["one", 2]})).texts("name").unwrap_err(),
        ];
        for (error, wanted) in messages.iter().zip([
            "a string",
            "a string, not 7",
            "from 1 to 8, not 70000",
            "from 1 to 8, not 1.5",
            "missing: it must be a whole number from 1 to 8",
            "a number, not \"1\"",
            "true or false, not \"yes\"",
            "an array of strings, not \"one\"",
            "2 is none",
        ]) {
            assert_eq!(error.code, RpcError::INVALID_PARAMS);
            assert!(error.message.contains("`name`"), "{error}");
            assert!(error.message.contains(wanted), "{error} lacks {wanted}");
        }
    }

    #[test]
    fn what_nobody_took_is_refused_by_name() {
        let mut params = params(json!({"weigth": 4, "tenant": null}));
        assert_eq!(params.optional_text("tenant"), Ok(None));
        assert_eq!(params.optional_number("weight"), Ok(None));
        let message = params.finish().unwrap_err().message;
        assert!(message.contains("\"weigth\"") && message.contains("tenant, weight"), "{message}");
    }

    #[test]
    fn positional_parameters_are_refused_and_none_at_all_are_fine() {
        assert!(Params::new(Some(json!(["vm1"]))).unwrap_err().message.contains("by name"));
        for none in [None, Some(json!(null)), Some(json!([])), Some(json!({}))] {
            Params::new(none).unwrap().finish().unwrap();
        }
    }
}
