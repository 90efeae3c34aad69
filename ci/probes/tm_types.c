/* Prints what the installed header says about the tag-matching headers; see ci/parts/headers. */
#include <endian.h>
#include <infiniband/tm_types.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static void bytes(const char *name, const void *p, size_t n)
{
	const unsigned char *b = p;
	printf("%s", name);
	for (size_t i = 0; i < n; i++)
		printf(" %02x", b[i]);
	printf("\n");
}

int main(void)
{
	const int opcodes[] = { IBV_TMH_NO_TAG, IBV_TMH_RNDV, IBV_TMH_FIN, IBV_TMH_EAGER };
	for (int i = 0; i < 4; i++) {
		struct ibv_tmh tmh;
		memset(&tmh, 0, sizeof tmh);
		tmh.opcode = opcodes[i];
		tmh.app_ctx = htobe32(0x21222324);
		tmh.tag = htobe64(0x3132333435363738ULL);
		bytes("tmh", &tmh, sizeof tmh);
	}
	struct ibv_rvh rvh;
	memset(&rvh, 0, sizeof rvh);
	rvh.va = htobe64(0x4142434445464748ULL);
	rvh.rkey = htobe32(0x51525354);
	rvh.len = htobe32(0x61626364);
	bytes("rvh", &rvh, sizeof rvh);
	return 0;
}
