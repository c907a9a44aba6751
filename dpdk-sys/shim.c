#include "shim.h"

int shim_errno(void) { return rte_errno; }

uint16_t shim_eth_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_rx_burst(port, queue, mbufs, count);
}

uint16_t shim_eth_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, mbufs, count);
}

struct rte_mbuf *shim_pktmbuf_alloc(struct rte_mempool *pool) { return rte_pktmbuf_alloc(pool); }

void shim_pktmbuf_free(struct rte_mbuf *mbuf) { rte_pktmbuf_free(mbuf); }

uint8_t *shim_pktmbuf_data(const struct rte_mbuf *mbuf, uint16_t *len)
{
	*len = rte_pktmbuf_data_len(mbuf);
	return rte_pktmbuf_mtod(mbuf, uint8_t *);
}

struct rte_mbuf *shim_pktmbuf_next(const struct rte_mbuf *mbuf) { return mbuf->next; }

uint32_t shim_pktmbuf_pkt_len(const struct rte_mbuf *mbuf) { return rte_pktmbuf_pkt_len(mbuf); }

uint8_t *shim_pktmbuf_append(struct rte_mbuf *mbuf, uint16_t len)
{
	return (uint8_t *)rte_pktmbuf_append(mbuf, len);
}
