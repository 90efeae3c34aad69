/* Prints what libfabric's headers say of the names that tagmatch-ofi-sys declares; see
 * ci/parts/headers. facts.inc is printed by its example fabric_layout: one line a fact. The lines
 * that this program prints have the same form, and the headers' numbers. */
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_prov.h>
/* Not every version is installed with it. */
#if __has_include(<rdma/fi_cxi_ext.h>)
#include <stdbool.h>
#include <stdint.h>
#include <rdma/fi_cxi_ext.h>
#endif
#include <stddef.h>
#include <stdio.h>

#define SIZE(type, size) printf("SIZE(" #type ", %zu)\n", sizeof(struct type));
#define FIELD(type, field, offset, size, ...)                                                     \
	printf("FIELD(" #type ", " #field ", %zu, %zu, %s)\n", offsetof(struct type, field),        \
	       sizeof(((struct type *)0)->field),                                                  \
	       __builtin_types_compatible_p(typeof(((struct type *)0)->field), __VA_ARGS__)        \
		       ? #__VA_ARGS__                                                              \
		       : "not " #__VA_ARGS__);
#define VALUE(name, value) printf("VALUE(" #name ", %lld)\n", (long long)(name));
/* What we allocate for a structure isn't the header's to say; ci/parts/headers compares it. */
#define ROOM(type, size)

int main(void)
{
#include "facts.inc"
	return 0;
}
