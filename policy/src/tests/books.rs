//! The books: nothing that was spent is lost.

use crate::{Account, Books, TenantIndex};
use proptest::prelude::*;

proptest! {
    #[test]
    fn books_close_whatever_is_charged(
        charges in prop::collection::vec((0u16..6, 0u64..1 << 40), 0..200)
    ) {
        let mut books = Books::new(4);
        let mut expected = [0u64; 6];
        for (to, cycles) in charges {
            let account = match to {
                4 => Account::Idle,
                5 => Account::Stolen,
                tenant => Account::Tenant(TenantIndex(tenant)),
            };
            books.charge(account, cycles);
            expected[usize::from(to)] += cycles;
        }
        for tenant in 0..4 {
            let account = Account::Tenant(TenantIndex(tenant));
            prop_assert_eq!(books.of(account), expected[usize::from(tenant)]);
        }
        prop_assert_eq!(books.of(Account::Idle), expected[4]);
        prop_assert_eq!(books.of(Account::Stolen), expected[5]);
        prop_assert_eq!(books.tenants_total(), expected[1..4].iter().sum::<u64>());
        prop_assert_eq!(books.total(), expected.iter().sum::<u64>());
    }
}

#[test]
fn an_index_outside_the_books_is_paid_by_the_system() {
    let mut books = Books::new(2);
    books.charge(Account::Tenant(TenantIndex(7)), 10);
    assert_eq!(books.of(Account::Tenant(TenantIndex(7))), 0);
    assert_eq!(books.of(Account::Tenant(TenantIndex::SYSTEM)), 10);
    assert_eq!(books.tenants_total(), 0);
    assert_eq!(books.total(), 10);
}
