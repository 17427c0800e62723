//! DART under everything that every index must pass.

mod common;

use common::{Tested, index_tests};
use darter_fabric::Fabric;
use darter_index::{Dart, DartOptions, IndexError};
use darter_pool::Client;

struct OfDart;

impl Tested for OfDart {
    type Index<F: Fabric> = Dart<F>;

    fn options<F: Fabric>() -> DartOptions {
        DartOptions { frequency_every: 4, ..DartOptions::default() }
    }

    /// The prefix list.
    async fn adjust<F: Fabric>(index: &Dart<F>, client: &mut Client<F>) -> Result<(), IndexError> {
        index.adjust(client).await.map(drop)
    }
}

index_tests!(OfDart);
