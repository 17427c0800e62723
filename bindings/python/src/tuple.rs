//! Keys of tables in the encoding of the Rust tables, FoundationDB's tuples, which keeps their
//! order.

use crate::errors;
use foundationdb_tuple::{Bytes, Element, pack as pack_element, unpack as unpack_element};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString, PyTuple};
use std::borrow::Cow;

fn element<'a>(key: &'a Bound<'_, PyAny>) -> PyResult<Element<'a>> {
    Ok(if key.is_none() {
        Element::Nil
    } else if let Ok(text) = key.cast::<PyString>() {
        Element::String(Cow::Owned(text.to_str()?.to_owned()))
    } else if let Ok(bytes) = key.cast::<PyBytes>() {
        Element::Bytes(Bytes::from(bytes.as_bytes()))
    } else if let Ok(truth) = key.cast::<PyBool>() {
        Element::Bool(truth.is_true())
    } else if key.is_instance_of::<PyInt>() {
        let number = key.extract();
        Element::Int(
            number.map_err(|_| PyOverflowError::new_err("integers in keys have at most 64 bits, signed"))?,
        )
    } else if let Ok(number) = key.cast::<PyFloat>() {
        Element::Double(number.value())
    } else if let Ok(parts) = key.cast::<PyTuple>() {
        let own = |part: Bound<'_, PyAny>| element(&part).map(Element::into_owned);
        Element::Tuple(parts.iter().map(own).collect::<PyResult<_>>()?)
    } else {
        let found = key.get_type().name()?.to_string();
        return Err(PyTypeError::new_err(format!(
            "keys of tables are None, bool, int, float, str, bytes and tuples of them, not {found}"
        )));
    })
}

fn object<'py>(py: Python<'py>, element: &Element<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match element {
        Element::Nil => py.None().into_bound(py),
        Element::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        Element::String(text) => PyString::new(py, text).into_any(),
        Element::Tuple(parts) => {
            let parts = parts.iter().map(|part| object(py, part)).collect::<PyResult<Vec<_>>>()?;
            PyTuple::new(py, parts)?.into_any()
        }
        Element::Int(number) => number.into_pyobject(py)?.into_any(),
        Element::Float(number) => PyFloat::new(py, f64::from(*number)).into_any(),
        Element::Double(number) => PyFloat::new(py, *number).into_any(),
        Element::Bool(truth) => PyBool::new(py, *truth).to_owned().into_any(),
        other @ Element::Versionstamp(_) => {
            return Err(errors::table(format!(
                "a key of the table has a type that Python has not: {other:?}"
            )));
        }
    })
}

/// Returns the encoding of a key.
#[pyfunction]
pub(crate) fn pack<'py>(py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &pack_element(&element(key)?)))
}

/// Returns the key with an encoding that begins at `start`.
#[pyfunction]
pub(crate) fn unpack<'py>(py: Python<'py>, bytes: &[u8], start: usize) -> PyResult<Bound<'py, PyAny>> {
    let bytes = bytes.get(start..).unwrap_or_default();
    let key: Element<'_> = unpack_element(bytes)
        .map_err(|why| errors::table(format!("the table holds a key of another type: {why}")))?;
    object(py, &key)
}
