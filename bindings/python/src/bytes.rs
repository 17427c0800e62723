//! Keys and values that Python passes: `bytes` without a copy, other buffers by one copy.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView};

/// A key or a value. It can be read without the GIL, since it never changes.
pub(crate) struct Bytes(PyBackedBytes);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<'py> FromPyObject<'_, 'py> for Bytes {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self(bytes.to_owned().into()));
        }
        let Ok(view) = PyMemoryView::from(&object) else {
            let found = object.get_type().name()?.to_string();
            return Err(PyTypeError::new_err(format!(
                "keys and values are bytes or other buffers, not {found}: encode it, or use a table, for example \
                 `db.table(\"name\", key=str, value=str)`"
            )));
        };
        let bytes = view.call_method0("tobytes")?;
        Ok(Self(bytes.cast_into::<PyBytes>()?.into()))
    }
}

/// Returns bytes as a Python object.
pub(crate) fn to_python(py: Python<'_>, bytes: impl AsRef<[u8]>) -> Py<PyBytes> {
    PyBytes::new(py, bytes.as_ref()).unbind()
}
