package client

// The ids that answers have to have: see identified.

func (a *Accepted) identity() string     { return a.JobID }
func (c *Changed) identity() string      { return c.JobID }
func (r *Report) identity() string       { return r.JobID }
func (b *BatchReceipt) identity() string { return b.BatchID }
func (b *Batch) identity() string        { return b.BatchID }
func (w *Webhook) identity() string      { return w.WebhookID }
func (d *Delivery) identity() string     { return d.DeliveryID }
func (k *Key) identity() string          { return k.KeyID }
