//! DART under the tests that every index must pass.

use crate::common::Tested;
use darter_fabric::Fabric;
use darter_index::{Dart, DartOptions, IndexError};
use darter_pool::Client;

struct OfDart;

impl Tested for OfDart {
    type Index<F: Fabric> = Dart<F>;

    fn options<F: Fabric>() -> DartOptions {
        DartOptions { frequency_every: 4, ..DartOptions::default() }
    }

    /// Adjusts the prefix list.
    async fn adjust<F: Fabric>(index: &Dart<F>, client: &mut Client<F>) -> Result<(), IndexError> {
        index.adjust(client).await.map(drop)
    }
}

/// DART without an express skip table: the base layer alone.
struct WithoutExpress;

impl Tested for WithoutExpress {
    type Index<F: Fabric> = Dart<F>;

    fn options<F: Fabric>() -> DartOptions {
        DartOptions { express: false, ..OfDart::options::<F>() }
    }

    /// Changes nothing for this index.
    async fn adjust<F: Fabric>(index: &Dart<F>, client: &mut Client<F>) -> Result<(), IndexError> {
        let report = index.adjust(client).await?;
        assert!(report.after.is_empty() && !report.rebuilt);
        Ok(())
    }
}

mod whole {
    use super::OfDart;

    crate::common::index_tests!(OfDart);
}

mod without_express {
    use super::WithoutExpress;

    crate::common::index_tests!(WithoutExpress);
}
